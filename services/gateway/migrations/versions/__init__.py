"""One module for each revision."""
