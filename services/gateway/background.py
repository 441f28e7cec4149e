"""Small pieces of work that must outlive the request that began them, bounded and awaited at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import grpc

from services.chassis.errors import ServiceError

log = logging.getLogger(__name__)
MOST_TASKS = 1000


class Background:
    """Keeps tasks until they end. Beyond MOST_TASKS a new one is dropped and told in the log."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Start `work`; its expected failures are logged."""
        if len(self._tasks) >= MOST_TASKS:
            work.close()
            log.warning("too much in the background; dropped", extra={"event": "background.dropped", "task": name})
            return
        task = asyncio.create_task(_logged(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self, seconds: float) -> None:
        """Wait for what runs, at most `seconds`, then cancel the rest."""
        if self._tasks:
            _, late = await asyncio.wait(list(self._tasks), timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


async def _logged(work: Coroutine[Any, Any, object], name: str) -> None:
    try:
        await work
    except (grpc.RpcError, ServiceError) as error:
        log.warning("failed in the background", extra={"event": "background.failed", "task": name, "error": str(error)})
