"""Workflows: a graph of nodes with typed state, as data. Read, checked when saved, drawn; a strategy runs them."""
