"""Hearing of other processes' changes by LISTEN on PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from services.orchestrator.adapters.sql.dialect import CHANNEL, OWNER_PREFIX
from services.orchestrator.journal.ports import RunSignal

_RECONNECT = 0.5
_KEEPALIVE = 10.0
_log = logging.getLogger(__name__)


class PostgresSignals:
    """Listens on one connection of its own and reconnects by itself."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def listen(self, heard: Callable[[RunSignal], None]) -> None:
        """Call `heard` for every notification; after each (re)connection once for any run, since some were missed."""
        while True:
            try:
                await self._listen_once(heard)
            except (OSError, TimeoutError, DBAPIError, asyncpg.PostgresError, asyncpg.InterfaceError):
                _log.warning("listening to the database broke", extra={"event": "signals_lost"}, exc_info=True)
            await asyncio.sleep(_RECONNECT)

    async def _listen_once(self, heard: Callable[[RunSignal], None]) -> None:
        def notified(connection: object, pid: int, channel: str, payload: object) -> None:
            text = str(payload)
            heard(RunSignal(run_id=text.removeprefix(OWNER_PREFIX), for_owner=text.startswith(OWNER_PREFIX)))

        # Of the engine, so that it is made with the same options, but never given back to the pool.
        async with self._engine.connect() as pooled:
            connection = (await pooled.get_raw_connection()).driver_connection
            assert connection is not None
            try:
                await connection.add_listener(CHANNEL, notified)
                heard(RunSignal(run_id=""))
                while True:
                    # A half-open connection says nothing for ever; a query finds out.
                    await asyncio.sleep(_KEEPALIVE)
                    await connection.execute("SELECT 1", timeout=5)
            finally:
                connection.terminate()
                await pooled.invalidate()
