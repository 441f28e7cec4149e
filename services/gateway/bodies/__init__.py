"""Request bodies of the HTTP API and how they become protobuf messages."""
