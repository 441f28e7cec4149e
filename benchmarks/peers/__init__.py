"""Other products under the same measurement."""
