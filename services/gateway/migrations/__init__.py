"""Schema of the gateway's database."""
