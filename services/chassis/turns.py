"""Taking turns to write.

SQLite lets one transaction write at a time, and those that wait for it poll without order; PostgreSQL lets many, and a
burst takes every connection there is. Here they wait in line instead, before they take a connection, and who must not
be kept waiting goes first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from weakref import WeakKeyDictionary

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import Pool

# Of the 15 connections that SQLAlchemy's pool gives out; the others are for readers.
SIDE_BY_SIDE = 8


class Turns:
    """`places` at once, and two lines for them: the urgent ones first, each in the order of coming."""

    def __init__(self, places: int = 1) -> None:
        self._free = places
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def turn(self, *, urgent: bool = False) -> AsyncIterator[None]:
        """Wait for the turn and hold it for the block."""
        await self._take(self._urgent if urgent else self._others)
        try:
            yield
        finally:
            self._give()

    async def _take(self, line: deque[asyncio.Future[None]]) -> None:
        if self._free:
            self._free -= 1
            return
        waiting = asyncio.get_running_loop().create_future()
        line.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self._give()  # it was given the turn in the same moment
            raise

    def _give(self) -> None:
        for line in (self._urgent, self._others):
            while line:
                waiting = line.popleft()
                if not waiting.done():
                    waiting.set_result(None)
                    return
        self._free += 1


_turns: WeakKeyDictionary[Pool, Turns] = WeakKeyDictionary()


def write_turn(engine: AsyncEngine, *, urgent: bool = False) -> AbstractAsyncContextManager[None]:
    """Return a block's turn to write with the engine."""
    turns = _turns.get(engine.pool)
    if turns is None:
        turns = _turns[engine.pool] = Turns(1 if engine.dialect.name == "sqlite" else SIDE_BY_SIDE)
    return turns.turn(urgent=urgent)
