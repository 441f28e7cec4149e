"""Upkeep of large tables in a process of its own at a low priority: in ours, it would take the searches' processor."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from pathlib import Path

from services.retrieval.adapters.child_process import ChildDied, ChildProcess

log = logging.getLogger(__name__)

WORKER = "services.retrieval.adapters.lance_upkeep_worker"
NICE = 15
# An index over some millions of vectors takes so long on a busy machine; it is only the bound of a fault.
SECONDS = 4 * 3600.0
# What the store's libraries leak goes with the process.
RETIRE_AFTER = 50


class LanceUpkeep:
    """Asks the process. What fails there is done again later: the table is as it was."""

    def __init__(self, directory: Path) -> None:
        self._child = ChildProcess(WORKER, [str(directory.resolve()), str(NICE)], retire_after=RETIRE_AFTER)

    async def fold(self, table: str, clean: timedelta | None) -> bool:
        """Fold new rows in and drop versions older than `clean`; return whether that was done."""
        return await self._ask({"table": table, "clean": None if clean is None else clean.total_seconds()})

    async def index_vectors(self, table: str) -> bool:
        """Build the index of the vectors; return whether that was done."""
        return await self._ask({"table": table, "index": True})

    async def close(self) -> None:
        """End the process."""
        await self._child.close()

    async def _ask(self, job: dict[str, object]) -> bool:
        try:
            failure = json.loads(await self._child.ask(json.dumps(job).encode(), SECONDS))
        except (TimeoutError, ChildDied) as error:
            failure = str(error) or "it took too long"
        if failure:
            log.warning("upkeep of the index waits: %s", failure, extra={"event": "index.upkeep_failed"})
        return not failure
