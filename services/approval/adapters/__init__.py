"""One module per technology."""
