"""The catalogue in SQL: sources, documents, passages, vocabulary, the vector queue."""
