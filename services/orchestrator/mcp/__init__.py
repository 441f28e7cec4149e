"""Tools of MCP servers: connected when needed, called through the gate like every other tool."""
