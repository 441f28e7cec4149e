"""The way in from the web: HTTP, SSE and WebSocket over the suite's RPCs. It keeps keys, and no run."""
