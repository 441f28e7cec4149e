"""The schema of the sandbox service, version by version."""
