"""The connections to servers: one for each tenant that uses one, and what is done with all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING

from opentelemetry.trace import Tracer

from services.chassis.clock import Clock, Ids
from services.chassis.errors import ServiceError
from services.orchestrator.mcp.ports import Files
from services.orchestrator.mcp.settings import ServerSettings

if TYPE_CHECKING:  # they load the MCP library, which only those who name a server wait for
    from services.orchestrator.mcp.connection import Connection
    from services.orchestrator.mcp.session import Session
    from services.orchestrator.mcp.workshop import Workshop


class Connections:
    """Connections by server and tenant. `load` comes before anything else."""

    def __init__(self, files: Files, clock: Clock, ids: Ids, tracer: Tracer) -> None:
        self._parts = (files, clock, ids, tracer)
        self._workshop: Workshop | None = None
        self._loading = asyncio.Lock()
        self._open: dict[tuple[str, str], Connection] = {}
        self._retired: set[Connection] = set()

    async def load(self) -> Workshop:
        """Return what makes connections and tools; the library is loaded in a thread, for it takes most of a second."""
        async with self._loading:
            if self._workshop is None:
                module = await asyncio.to_thread(import_module, "services.orchestrator.mcp.workshop")
                self._workshop = module.Workshop(*self._parts)
            return self._workshop

    async def of(self, settings: ServerSettings, tenant: str) -> Connection:
        """Return the tenant's own connection: no tenant ever speaks through the session of another."""
        workshop = await self.load()
        key = (settings.name, tenant)
        known = self._open.get(key)
        if known is not None and known.settings != settings:
            self._retired.add(self._open.pop(key))
            known = None
        if known is None:
            credentials = settings.credentials_of(tenant)
            assert credentials is not None
            known = self._open[key] = workshop.connection(settings, credentials)
        return known

    def listed(self, tenant: str) -> set[str]:
        """Return the servers whose tools are known for a tenant."""
        return {name for (name, of), each in self._open.items() if of == tenant and each.listing is not None}

    async def rest(self) -> None:
        """Close sessions that nobody has used for their server's idle time."""
        for connection in list(self._open.values()):
            await connection.rest()

    async def tidy(self, servers: Sequence[ServerSettings]) -> None:
        """Close connections whose server changed or went, once their calls have ended."""
        current = {each.name: each for each in servers}
        for key, connection in list(self._open.items()):
            if current.get(key[0]) != connection.settings:
                self._retired.add(self._open.pop(key))
        for connection in [each for each in self._retired if not each.open_calls]:
            self._retired.discard(connection)
            await connection.close()

    async def close(self) -> None:
        """Close everything."""
        if self._workshop is not None:
            await self._workshop.close()
        everything = [*self._open.values(), *self._retired]
        self._open.clear()
        self._retired.clear()
        await asyncio.gather(*(connection.close() for connection in everything))


async def connect_all(connections: Iterable[Connection], within: timedelta) -> Collection[Connection]:
    """Connect what is not, and return those that need longer than `within` and go on beside."""
    attempts = {_attempt(each): each for each in connections}
    if not attempts:
        return ()
    _, late = await asyncio.wait(attempts, timeout=within / timedelta(seconds=1))
    return {attempts[attempt] for attempt in late}


async def list_new(connections: Mapping[str, Connection], patience: timedelta) -> dict[str, str]:
    """Connect those that were never listed; return why some cannot be used now.

    Whoever asks waits for a server's first answer only: one that failed is tried again beside.
    """
    away: dict[str, str] = {}
    first: dict[str, asyncio.Task[Session]] = {}
    for name, connection in connections.items():
        if connection.listing is not None:
            continue
        attempt = _attempt(connection)
        if connection.problem:
            away[name] = connection.problem
        else:
            first[name] = attempt
    if first:
        await asyncio.wait(first.values(), timeout=patience / timedelta(seconds=1))
    for name, attempt in first.items():
        if not attempt.done():
            away[name] = f"no answer within {patience / timedelta(seconds=1):g} s"
        elif isinstance(attempt.exception(), ServiceError):
            away[name] = connections[name].problem
    return away


def _attempt(connection: Connection) -> asyncio.Task[Session]:
    """Begin to connect; a failure that nobody waits for is told by the connection."""
    attempt = asyncio.create_task(connection.connect())
    attempt.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return attempt
