"""All MCP servers: a connection for each tenant that uses one, their tools under names of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.trace import Tracer

from services.chassis.clock import Clock, Ids
from services.chassis.identity import Principal
from services.orchestrator.mcp.config_file import McpInvalid, read_servers
from services.orchestrator.mcp.connections import Connections, connect_all, list_new
from services.orchestrator.mcp.definitions import define, framed_instructions, is_suppressed, left_out_of
from services.orchestrator.mcp.naming import SEPARATOR
from services.orchestrator.mcp.ports import Files, Link, ListedTool, Listing
from services.orchestrator.mcp.settings import ServerSettings
from services.orchestrator.tools.ports import Provided, ToolDefinition

if TYPE_CHECKING:  # they load the MCP library, which only those who name a server wait for
    from services.orchestrator.mcp.connection import Connection
    from services.orchestrator.mcp.tool import McpTool
    from services.orchestrator.mcp.workshop import Workshop

_log = logging.getLogger(__name__)
REST = timedelta(seconds=30)
# How long the start of a run waits for servers that were never listed; their tools come with a later run.
PATIENCE = timedelta(seconds=3)
WATCH_SECONDS = 2.0
# How long those who ask for the state of servers wait for connections.
ASKED = timedelta(seconds=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """A server as a tenant's operator sees it. `tools` are offered, `left_out` are not, each with why."""

    name: str
    is_local: bool
    link: Link
    problem: str
    listing: Listing | None
    tools: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]


class McpServers:
    """Implements ToolProvider. A tenant's servers are connected when its first run wants tools, or before."""

    def __init__(
        self,
        path: Path,
        environ: Mapping[str, str],
        *,
        files: Files,
        clock: Clock,
        ids: Ids,
        tracer: Tracer,
        greeted: tuple[str, ...] = (),
        patience: timedelta = PATIENCE,
    ) -> None:
        """Read the servers. `greeted` are tenants for whom they are listed before any run. Raises McpInvalid."""
        self._path = path
        self._environ = environ
        self._clock = clock
        self._greeted = greeted
        self._patience = patience
        self._seen = _stamp(path)
        self._settings = read_servers(path, environ)
        self._connections = Connections(files, clock, ids, tracer)

    # --- ToolProvider ---------------------------------------------------------------------------------------------

    async def tools(self, principal: Principal, patterns: tuple[str, ...]) -> Provided:
        """Return the tools of the principal's tenant that `patterns` name, waiting a little for new servers."""
        servers = [
            each
            for each in self._settings.servers
            if each.credentials_of(principal.tenant) is not None and _concerns(patterns, each.name)
        ]
        if not servers:
            return Provided()
        connections = {each.name: await self._connections.of(each, principal.tenant) for each in servers}
        away = await list_new(connections, self._patience)
        workshop = await self._connections.load()
        tools: dict[str, McpTool] = {}
        withheld: dict[str, str] = {}
        instructions: list[str] = []
        for settings in servers:
            connection = connections[settings.name]
            if (problem := away.get(settings.name)) or connection.listing is None:
                withheld[f"{settings.name}{SEPARATOR}*"] = problem or "the server has not answered yet"
                continue
            offered = self._offered(settings, connection, workshop)
            chosen = {
                name: tool for name, tool in offered.items() if not patterns or any(_fits(p, name) for p in patterns)
            }
            tools |= chosen
            withheld |= {
                f"{settings.name}{SEPARATOR}{name}": why for name, why in left_out_of(settings, connection.listing)
            }
            if chosen and settings.takes_instructions and connection.listing.instructions:
                instructions.append(framed_instructions(settings.name, connection.listing.instructions))
        return Provided(
            tools=tuple(tools.values()),
            withheld=withheld,
            instructions="\n\n".join(instructions),
            notices=tuple(
                ("tool_server_unreachable", f"The tools of '{name}' are missing: {problem}.")
                for name, problem in away.items()
            ),
        )

    async def find(self, principal: Principal, name: str) -> McpTool | None:
        """Return a tool by the name that the model calls it by; None when its server has none of it (any more).

        Raises Unreachable when the server was never listed and cannot be now.
        """
        settings = next((s for s in self._settings.servers if name.startswith(f"{s.name}{SEPARATOR}")), None)
        if settings is None or settings.credentials_of(principal.tenant) is None:
            return None
        connection = await self._connections.of(settings, principal.tenant)
        if connection.listing is None:
            await connection.connect()
        return self._offered(settings, connection, await self._connections.load()).get(name)

    # --- life -----------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Read the file again when it changes and rest what nobody uses, until cancelled."""
        await self._greet()
        rested = self._clock.monotonic()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            changed = await asyncio.to_thread(self.reload)
            await self.tidy()
            if changed:
                await self._greet()
            if self._clock.monotonic() - rested > REST.total_seconds():
                rested = self._clock.monotonic()
                await self.rest()

    async def _greet(self) -> None:
        """Load the library and list every server, so that no run waits for either."""
        if self._settings.servers:
            await self._connections.load()
        await asyncio.gather(*(self.states(tenant, connect=True) for tenant in self._greeted))

    async def rest(self) -> None:
        """Close sessions that nobody has used for their server's idle time."""
        await self._connections.rest()

    def reload(self) -> bool:
        """Read the file again if it changed; tell whether the servers are new now. A wrong file changes nothing."""
        stamp = _stamp(self._path)
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            self._settings = read_servers(self._path, self._environ)
        except (McpInvalid, OSError) as error:
            _log.error("the MCP servers in %s are wrong, the last good ones stay: %s", self._path.name, error)
            return False
        return True

    async def tidy(self) -> None:
        """Close connections whose server changed or went, once their calls have ended."""
        await self._connections.tidy(self._settings.servers)

    async def close(self) -> None:
        """Close everything."""
        await self._connections.close()

    def listed(self, tenant: str) -> set[str]:
        """Return the servers whose tools are known for a tenant."""
        return self._connections.listed(tenant)

    async def states(self, tenant: str, *, connect: bool) -> tuple[ServerState, ...]:
        """Return every server of a tenant, connected first when `connect`."""
        servers = [each for each in self._settings.servers if each.credentials_of(tenant) is not None]
        connections = [await self._connections.of(each, tenant) for each in servers]
        late = await connect_all(connections, ASKED) if connect else ()
        return tuple(self._state(each, late=each in late) for each in connections)

    def _state(self, connection: Connection, *, late: bool) -> ServerState:
        settings, listing = connection.settings, connection.listing
        waited = f"no answer within {ASKED.total_seconds():g} s" if late else ""
        return ServerState(
            name=settings.name,
            is_local=settings.is_local,
            link=Link.BROKEN if waited else connection.link,
            problem=connection.problem or waited,
            listing=listing,
            tools=tuple(self._definitions(settings, listing)) if listing else (),
            left_out=tuple(left_out_of(settings, listing)) if listing else (),
        )

    def _offered(self, settings: ServerSettings, connection: Connection, workshop: Workshop) -> dict[str, McpTool]:
        assert connection.listing is not None
        definitions = self._definitions(settings, connection.listing)
        return {
            name: workshop.tool(definition, listed, connection) for name, (definition, listed) in definitions.items()
        }

    def _definitions(self, settings: ServerSettings, listing: Listing) -> dict[str, tuple[ToolDefinition, ListedTool]]:
        listed = [tool for tool in listing.tools if not is_suppressed(settings, tool.name)]
        defined = [(define(tool, settings, self._settings), tool) for tool in listed]
        return {definition.name: (definition, tool) for definition, tool in defined}


def _fits(pattern: str, name: str) -> bool:
    """Tell whether a binding's pattern names a tool: its name, or its beginning and a star."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _concerns(patterns: tuple[str, ...], server: str) -> bool:
    """Tell whether any pattern could name a tool of the server, so that no other server is connected."""
    prefix = f"{server}{SEPARATOR}"
    return not patterns or any(
        p.startswith(prefix) or (p.endswith("*") and prefix.startswith(p[:-1])) for p in patterns
    )


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)
