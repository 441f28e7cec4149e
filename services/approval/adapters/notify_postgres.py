"""A bell that rings in every replica: PostgreSQL's LISTEN. The NOTIFY is part of the writer's transaction."""

from __future__ import annotations

import asyncio
import logging

import asyncpg
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from services.approval.adapters.notify_local import LocalBell, LocalListener
from services.approval.adapters.sql_changes import CHANNEL

log = logging.getLogger(__name__)

RECONNECT_DELAY = 1.0


class PostgresBell:
    """`Bell` over one connection of the engine; while it is broken, followers still poll."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
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
            except (OSError, SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.warning("cannot listen for changes of other replicas: %s", error)
            await asyncio.sleep(RECONNECT_DELAY)

    async def _listen_once(self) -> None:
        async with self._engine.connect() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            if driver is None:
                return
            closed = asyncio.Event()
            try:
                driver.add_termination_listener(lambda _: closed.set())
                await driver.add_listener(CHANNEL, lambda *_: self._local.ring())
                # What was missed while there was no connection.
                self._local.ring()
                await closed.wait()
            finally:
                # It listens, so no other transaction may have it.
                driver.terminate()
                await connection.invalidate()
