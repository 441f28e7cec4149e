"""The `proctor` command: starts the suite, and speaks to it as any client does."""
