"""What loads the MCP library: connections and tools."""

from __future__ import annotations

import logging

from opentelemetry.trace import Tracer

from services.chassis.clock import Clock, Ids
from services.orchestrator.mcp.calls import KeptCalls
from services.orchestrator.mcp.connection import Connection
from services.orchestrator.mcp.ports import Files, ListedTool
from services.orchestrator.mcp.results import Results
from services.orchestrator.mcp.settings import Credentials, ServerSettings
from services.orchestrator.mcp.tool import McpTool
from services.orchestrator.tools.ports import ToolDefinition


class Workshop:
    """Makes connections and tools; keeps the calls that wait for people."""

    def __init__(self, files: Files, clock: Clock, ids: Ids, tracer: Tracer) -> None:
        self._results = Results(files)
        self._clock = clock
        self._tracer = tracer
        self._kept = KeptCalls(ids)
        # The library logs what servers write, arguments among it; what an operator needs to know is logged by us.
        for name in ("mcp", "client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def connection(self, settings: ServerSettings, credentials: Credentials) -> Connection:
        """Return a way to a server, not connected yet."""
        return Connection(settings, credentials, self._clock)

    def tool(self, definition: ToolDefinition, listed: ListedTool, connection: Connection) -> McpTool:
        """Return a tool of a server."""
        return McpTool(definition, listed, connection, results=self._results, kept=self._kept, tracer=self._tracer)

    async def close(self) -> None:
        """Stop the calls that wait."""
        await self._kept.close()
