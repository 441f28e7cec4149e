"""A bell inside one process."""

from __future__ import annotations

import asyncio
from weakref import WeakSet


class LocalListener:
    """Waits for a ring; one that came since the last wait counts."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def rung(self) -> None:
        """Note a ring."""
        self._rung.set()

    async def wait(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()


class LocalBell:
    """`Bell` for followers in this process. With SQLite, other processes on the same file find changes by polling."""

    def __init__(self) -> None:
        self._listeners: WeakSet[LocalListener] = WeakSet()

    def ring(self) -> None:
        for listener in tuple(self._listeners):
            listener.rung()

    def listen(self) -> LocalListener:
        listener = LocalListener()
        self._listeners.add(listener)
        return listener
