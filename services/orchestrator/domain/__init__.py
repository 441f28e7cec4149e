"""Pure data and rules of the orchestrator. Read this first."""
