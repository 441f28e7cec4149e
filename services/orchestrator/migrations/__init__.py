"""Schema of the orchestrator's database, step by step."""
