"""One module for each technology the gateway's ports stand on."""
