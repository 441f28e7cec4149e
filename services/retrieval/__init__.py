"""Retrieval: keeps sources and documents, finds passages, searches the web safely."""
