"""The schema of the approval service, version by version."""
