"""Technologies behind the ports: the other services over gRPC, databases, files."""
