"""The web: pages by checked addresses only, and search providers."""
