"""What retrieval speaks of: sources, documents, passages, questions, hits. Pure."""
