"""Runs agents: the loop, the gate, the journal."""
