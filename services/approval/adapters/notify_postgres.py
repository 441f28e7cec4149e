"""A bell that rings in every replica: PostgreSQL's LISTEN. The NOTIFY is part of the writer's transaction."""

from __future__ import annotations

import asyncio
import logging

import asyncpg

from services.approval.adapters.notify_local import LocalBell, LocalListener
from services.approval.adapters.sql_changes import CHANNEL

log = logging.getLogger(__name__)

RECONNECT_DELAY = 1.0


class PostgresBell:
    """`Bell` over one connection of its own; while it is broken, followers still poll."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._local = LocalBell()

    def ring(self) -> None:
        self._local.ring()

    def listen(self) -> LocalListener:
        return self._local.listen()

    async def run(self) -> None:
        """Listen until cancelled, connecting anew whenever the connection breaks."""
        while True:
            try:
                await self._listen_once()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.warning("cannot listen for changes of other replicas: %s", error)
            await asyncio.sleep(RECONNECT_DELAY)

    async def _listen_once(self) -> None:
        connection = await asyncpg.connect(self._dsn)
        closed = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: closed.set())
            await connection.add_listener(CHANNEL, lambda *_: self._local.ring())
            # What was missed while there was no connection.
            self._local.ring()
            await closed.wait()
        finally:
            connection.terminate()
