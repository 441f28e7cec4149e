"""Runs as journals: ordered events, owned by lease and epoch, committed before they are believed."""
