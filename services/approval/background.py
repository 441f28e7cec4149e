"""Work that goes on beside the calls: sweeping, following changes, the audit log, webhooks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from services.approval.ports import Bell

log = logging.getLogger(__name__)

RETRY_DELAY = 1.0

Wait = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """A step that is done again and again, each time after `wait`."""

    name: str
    wait: Wait
    step: Callable[[], Awaitable[object]]


def on_bell(bell: Bell, poll: float, *, gather: float = 0.0) -> Wait:
    """Wait for the bell, at most `poll` seconds; then `gather` more, to do the work of several rings at once."""
    listener = bell.listen()

    async def wait() -> None:
        await listener.wait(poll)
        if gather:
            await asyncio.sleep(gather)

    return wait


def every(seconds: float) -> Wait:
    """Wait `seconds`."""
    return lambda: asyncio.sleep(seconds)


class Background:
    """Runs chores until stopped. One that fails is logged and tried again: a database may be away for a while."""

    def __init__(self, chores: Sequence[Chore]) -> None:
        self._chores = chores
        self._failing: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def works(self, name: str) -> bool:
        """Return whether the chore's last turn went well, or none was done yet."""
        return name not in self._failing

    def start(self) -> None:
        """Begin every chore."""
        self._task = asyncio.create_task(self._run(), name="approval background")

    async def stop(self) -> None:
        """End every chore where it waits or stands."""
        if self._task is None:
            return
        self._task.cancel()
        try:
            await self._task
        except asyncio.CancelledError:
            # Ours, unless it is this caller that is being cancelled.
            if not self._task.cancelled():
                raise
        finally:
            self._task = None

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for chore in self._chores:
                group.create_task(self._repeat(chore), name=f"approval {chore.name}")

    async def _repeat(self, chore: Chore) -> None:
        while True:
            await chore.wait()
            if await _done(chore):
                self._failing.discard(chore.name)
            else:
                self._failing.add(chore.name)
                await asyncio.sleep(RETRY_DELAY)


async def _done(chore: Chore) -> bool:
    try:
        await chore.step()
    except Exception as error:
        log.warning(
            "background work '%s' failed; it is tried again: %s",
            chore.name,
            error,
            extra={"event": "approval.background_failed", "chore": chore.name},
            exc_info=error,
        )
        return False
    return True
