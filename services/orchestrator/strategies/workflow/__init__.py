"""Workflow agents: walking a graph of nodes, each of which can be gone on from after a crash or a pause."""
