"""Schema versions of the catalogue."""
