"""Agents: which sources and tools they get, what their prompt says, how they prepare a run."""
