"""A running execution that several callers may watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from services.sandbox.domain import Event, Finished


class LiveExecution:
    """Events so far, and who watches. Bounded, because output and artifacts are: about 65 MiB at most."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.abandoned = asyncio.Event()
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self._closed = False
        self._watchers = 0

    def publish(self, event: Event) -> None:
        """Show an event to every watcher."""
        self.events.append(event)
        self._wake()

    def close(self, failure: Exception | None = None) -> None:
        """End every watcher's stream, with `failure` when there is one."""
        self._closed, self._failure = True, failure
        self._wake()

    async def watch(self) -> AsyncGenerator[Event, None]:
        """Yield the events from the first on. When the last watcher leaves early the execution is abandoned."""
        self._watchers += 1
        position = 0
        try:
            while True:
                changed = self._changed
                while position < len(self.events):
                    event = self.events[position]
                    position += 1
                    yield event
                    if isinstance(event, Finished):
                        return
                if self._closed:
                    if self._failure is not None:
                        raise self._failure
                    return
                if changed is self._changed:
                    await changed.wait()
        finally:
            self._watchers -= 1
            if self._watchers == 0:
                self.abandoned.set()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
