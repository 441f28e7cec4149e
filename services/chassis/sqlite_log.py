"""Bring SQLite's write-ahead log to the disk a moment after commits that did not wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from concurrent.futures import Executor

_log = logging.getLogger(__name__)
# Seconds until the log is on the disk at the latest, but for what the disk itself takes.
SOON = 0.05
# Not every system has the call that leaves times of the file out.
_to_disk = getattr(os, "fdatasync", os.fsync)


class LogSync:
    """Syncs the log of one database file, once for all commits of a moment."""

    def __init__(self, database: str, threads: Executor) -> None:
        self._path = f"{database}-wal"
        self._threads = threads
        self._timer: asyncio.TimerHandle | None = None

    def owe(self) -> None:
        """Note a commit that is not on the disk yet."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SOON, self._begin)

    def settle(self) -> None:
        """Note that a commit has waited for the disk, which brought all those before it there too."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        asyncio.get_running_loop().run_in_executor(self._threads, self._sync)

    def _sync(self) -> None:
        # Without a log everything is in the database file. Nobody locks the log, so closing it here frees no lock.
        with contextlib.suppress(FileNotFoundError):
            log = os.open(self._path, os.O_RDONLY)
            try:
                _to_disk(log)
            except OSError:
                _log.exception("the database's log is not on the disk yet", extra={"event": "log_sync_failed"})
            finally:
                os.close(log)
