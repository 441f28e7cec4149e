"""The moment from which open streams must end: a credential lapsed, or the gateway stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Ending(asyncio.Event):
    """An event that also calls those who ask for it, so that an open stream needs no task that waits."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[Callable[[], None]] = set()

    def tell(self, listener: Callable[[], None]) -> None:
        """Call `listener` once the event is set, at once when it is."""
        if self.is_set():
            listener()
        else:
            self._told.add(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        """Call `listener` no more."""
        self._told.discard(listener)

    def set(self) -> None:
        """Set the event and call the listeners."""
        super().set()
        told, self._told = self._told, set()
        for listener in told:
            listener()
