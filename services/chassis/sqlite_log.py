"""SQLite's write-ahead log beside the commits: brought to the disk for those that did not wait, and into the file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from concurrent.futures import Executor
from urllib.parse import quote

_log = logging.getLogger(__name__)
# Seconds until the log is on the disk at the latest, but for what the disk itself takes.
SOON = 0.05
# Not every system has the call that leaves times of the file out.
_to_disk = getattr(os, "fdatasync", os.fsync)


class LogSync:
    """Looks after the log of one database file, in a thread, once for all commits of a moment."""

    def __init__(self, database: str, threads: Executor) -> None:
        self._database = database
        self._threads = threads
        self._checkpoint_due = False
        self._timer: asyncio.TimerHandle | None = None

    def owe(self) -> None:
        """Note a commit that is not on the disk yet."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SOON, self._begin)

    def checkpoint(self) -> None:
        """Bring the log into the database file soon, which brings it to the disk as well."""
        self._checkpoint_due = True
        self.owe()

    def close(self) -> None:
        """Leave the rest to whoever closes the last connection."""
        self._checkpoint_due = False
        self.settle()

    def settle(self) -> None:
        """Note that a commit has waited for the disk, which brought all those before it there too."""
        if self._timer is not None and not self._checkpoint_due:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        work = self._bring_into_file if self._checkpoint_due else self._sync
        self._checkpoint_due = False
        asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _bring_into_file(self) -> None:
        # PASSIVE takes no lock that others wait for, and does what readers allow.
        existing = f"file:{quote(self._database)}?mode=rw"
        try:
            with contextlib.closing(sqlite3.connect(existing, uri=True, isolation_level=None)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").close()
        except sqlite3.Error:
            _log.exception("the database's log is not in its file yet", extra={"event": "log_checkpoint_failed"})

    def _sync(self) -> None:
        # Without a log everything is in the database file. Nobody locks the log, so closing it here frees no lock.
        with contextlib.suppress(FileNotFoundError):
            log = os.open(f"{self._database}-wal", os.O_RDONLY)
            try:
                _to_disk(log)
            except OSError:
                _log.exception("the database's log is not on the disk yet", extra={"event": "log_sync_failed"})
            finally:
                os.close(log)
