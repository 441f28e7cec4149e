"""What retrieval does besides answering: ingest, vectors, upkeep of the index. Started and stopped as one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from services.retrieval.embedding import EmbedWorker
from services.retrieval.ingest import Ingest
from services.retrieval.ports import ChunkIndex
from services.retrieval.purge import Purger

log = logging.getLogger(__name__)

# A worker that fails for a passing reason (a full disk, a database that restarts) is started again after this.
RESTART_SECONDS = 5.0


class Worker(Protocol):
    """Works off a durable queue."""

    async def run(self) -> None:
        """Work until cancelled."""


class Background:
    """The background tasks."""

    def __init__(
        self,
        ingest: Ingest,
        embed: EmbedWorker | None,
        index: ChunkIndex,
        purger: Purger,
        *,
        maintain_every: float,
        workers: Sequence[Worker] = (),
    ) -> None:
        self._workers = workers
        self._ingest = ingest
        self._embed = embed
        self._index = index
        self._purger = purger
        self._maintain_every = maintain_every
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Finish what a crash left, then work in the background."""
        await self._purger.run()
        recovered = await self._ingest.recover()
        if recovered:
            log.info("taking up %d interrupted files", recovered, extra={"event": "ingest.recovered"})
        self._task = asyncio.create_task(self._run(), name="retrieval background")

    async def stop(self) -> None:
        """Stop at once: whatever is under way is taken up at the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ingest.run())
            group.create_task(self._maintain())
            for worker in (*filter(None, (self._embed,)), *self._workers):
                group.create_task(self._keep(worker))

    async def _keep(self, worker: Worker) -> None:
        while True:
            try:
                await worker.run()
            except Exception:
                kind = type(worker).__name__
                log.exception("%s failed and starts again", kind, extra={"event": "worker.failed", "worker": kind})
            await asyncio.sleep(RESTART_SECONDS)

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(self._maintain_every)
            try:
                await self._purger.run()
                await self._index.maintain()
            except Exception:
                log.exception("upkeep of the index failed and is tried again", extra={"event": "index.upkeep_failed"})
