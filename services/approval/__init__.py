"""Asks people before agents act: durable records, decisions, policy, allow rules, proof of what was decided."""
