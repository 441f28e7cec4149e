"""Several helpers of one kind, each for one caller at a time; one is only started when the others are taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from services.retrieval.adapters.child_process import ChildProcess


class ChildPool:
    """Gives helpers out; whoever comes when all are taken waits."""

    def __init__(self, children: Sequence[ChildProcess]) -> None:
        self._children = children
        # The one that came back last is the warmest.
        self._idle: asyncio.LifoQueue[ChildProcess] = asyncio.LifoQueue()
        for child in children:
            self._idle.put_nowait(child)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[ChildProcess]:
        """Hold one helper."""
        child = await self._idle.get()
        try:
            yield child
        finally:
            self._idle.put_nowait(child)

    async def close(self) -> None:
        """End the processes."""
        for child in self._children:
            await child.close()
