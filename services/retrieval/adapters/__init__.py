"""One module per technology; adapters translate and call, policy lives inside."""
