"""SQLite on the event loop: statements run where they are called, only what waits for the disk runs in a thread.

A statement of a service is a few microseconds of work on pages in memory. Handing it to a thread and back, four times
a statement as the usual driver does, costs forty times that. So here a statement runs at once. What may take long goes
to a thread: COMMIT where the disk is slow, many rows in one call, and statements of connections with the execution
option `aside=True`. A lock that another process holds is asked for again and again without blocking the loop.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import URL
from sqlalchemy.pool import AsyncAdaptedQueuePool, Pool
from sqlalchemy.util.concurrency import await_

T = TypeVar("T")

DRIVER = "sqlite+inline"
MANY_ROWS = 200
# Where commits take longer than this on average, in seconds, they go to a thread, and after so many it is tried on the
# loop again. A good disk needs half a millisecond, and a thread may wait five for the interpreter on both ways.
SLOW_COMMIT = 0.005
COMMITS_ASIDE = 200
# Every so many commits one goes to a thread and brings the log into the file, which SQLite would do in the middle of a
# commit on the loop once the log has a thousand pages: ten milliseconds.
COMMITS_A_CHECKPOINT = 64
LONGEST_POLL = 0.02

threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="sqlite")


class Disk:
    """How long commits take, all connections of an engine together."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._average = 0.0
        self._aside = 0
        self._commits = 0

    def is_slow(self) -> bool:
        """Return whether the next commit belongs in a thread, and count it there."""
        if self._average <= SLOW_COMMIT:
            return False
        self._aside += 1
        if self._aside == COMMITS_ASIDE:
            self._average, self._aside = 0.0, 0
        return True

    def wants_checkpoint(self) -> bool:
        """Return whether the log should be brought into the file with the next commit, and count that."""
        self._commits += 1
        return self._commits % COMMITS_A_CHECKPOINT == 0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Judge the disk by the commit of this block; one that is slow for once says little."""
        begun = self._clock()
        yield
        took = min(self._clock() - begun, 2 * SLOW_COMMIT)
        self._average += (took - self._average) / 4


class InlineCursor:
    """A DBAPI cursor that has read all its rows when `execute` returns."""

    server_side = False

    def __init__(self, connection: InlineConnection) -> None:
        self._connection = connection
        self._cursor = connection.driver_connection.cursor()
        self._rows: deque[Any] = deque()

    @property
    def description(self) -> Any:
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._cursor.lastrowid

    @property
    def arraysize(self) -> int:
        return self._cursor.arraysize

    @arraysize.setter
    def arraysize(self, value: int) -> None:
        self._cursor.arraysize = value

    def execute(self, operation: str, parameters: Any = ()) -> None:
        await_(self._connection.run(lambda: self._execute(operation, parameters), aside=self._connection.aside))

    def executemany(self, operation: str, rows: Sequence[Any]) -> None:
        aside = self._connection.aside or len(rows) > MANY_ROWS
        await_(self._connection.run(lambda: self._cursor.executemany(operation, rows), aside=aside))

    def _execute(self, operation: str, parameters: Any) -> None:
        self._cursor.execute(operation, parameters)
        if self._cursor.description:
            self._rows = deque(self._cursor.fetchall())

    def fetchone(self) -> Any:
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = None) -> Sequence[Any]:
        return [self._rows.popleft() for _ in range(min(size or self.arraysize, len(self._rows)))]

    def fetchall(self) -> Sequence[Any]:
        rows, self._rows = list(self._rows), deque()
        return rows

    def __iter__(self) -> Iterator[Any]:
        while self._rows:
            yield self._rows.popleft()

    def setinputsizes(self, *sizes: Any) -> None:
        """SQLite has no use for them."""

    def close(self) -> None:
        self._rows.clear()
        self._cursor.close()

    async def _async_soft_close(self) -> None:
        """SQLAlchemy's hook to end a statement whose rows are kept; here `execute` has ended it."""


class InlineConnection:
    """A DBAPI connection. `aside` sends its statements to a thread; a lock is waited for during `patience` seconds.

    One that is `relaxed` commits without waiting for the disk.
    """

    def __init__(self, connection: sqlite3.Connection, patience: float, disk: Disk) -> None:
        self._connection = connection
        self._disk = disk
        self.patience = patience
        self.aside = False
        self.relaxed = False
        # Brings the log into the file beside the commits; without it every so many commits do it themselves.
        self.checkpoint: Callable[[], None] | None = None
        self._changes = 0

    @property
    def driver_connection(self) -> sqlite3.Connection:
        return self._connection

    def cursor(self) -> InlineCursor:
        return InlineCursor(self)

    def execute(self, operation: str, parameters: Any = ()) -> InlineCursor:
        cursor = self.cursor()
        cursor.execute(operation, parameters)
        return cursor

    def create_function(self, *args: Any, **options: Any) -> None:
        self._connection.create_function(*args, **options)

    async def run(self, work: Callable[[], object], *, aside: bool = False) -> None:
        """Do `work`, in a thread when it is `aside`; again while a lock that another process holds is in its way."""
        give_up = 0.0
        delay = 0.0005
        while True:
            try:
                if aside:
                    await _in_thread(work, self._connection.interrupt)
                else:
                    work()
            except sqlite3.OperationalError as error:
                # Exactly this code: the statement has done nothing and may do it later.
                if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_BUSY:
                    raise
                now = time.monotonic()
                give_up = give_up or now + self.patience
                if now >= give_up:
                    raise
            else:
                return
            await asyncio.sleep(delay)
            delay = min(delay * 2, LONGEST_POLL)

    def commit(self) -> None:
        await_(self.finish())

    async def finish(self) -> None:
        """Commit, on the loop or in a thread, wherever it is done best."""
        if not self._connection.in_transaction:
            return
        if self._connection.total_changes == self._changes:
            self._connection.commit()  # nothing to bring to the disk
            return
        try:
            due = self._disk.wants_checkpoint()
            if due and self.checkpoint is not None:
                self.checkpoint()
                due = False
            if due:
                await _in_thread(self._commit_and_checkpoint)
            elif self.relaxed:
                self._connection.commit()
            elif self._disk.is_slow():
                await _in_thread(self._connection.commit)
            else:
                with self._disk.timed():
                    self._connection.commit()
        finally:
            self._changes = self._connection.total_changes

    def _commit_and_checkpoint(self) -> None:
        self._connection.commit()
        # It takes no lock that others wait for, and does what readers allow.
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").close()

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.rollback()
        self._changes = self._connection.total_changes

    def close(self) -> None:
        self._connection.close()

    terminate = close


class InlineModule:
    """The DBAPI that SQLAlchemy sees: the standard library's, but for the connections it makes."""

    def __init__(self) -> None:
        self._disk = Disk()

    def connect(self, *args: Any, timeout: float = 5.0, **options: Any) -> InlineConnection:
        options |= {"timeout": 0, "isolation_level": None, "check_same_thread": False}
        made: sqlite3.Connection = sqlite3.connect(*args, **options)
        return InlineConnection(made, timeout, self._disk)

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)


class InlineDialect(SQLiteDialect_pysqlite):
    """`sqlite+inline://`: pysqlite's SQL for asyncio engines."""

    driver = "inline"
    supports_statement_cache = True
    is_async = True
    has_terminate = True

    @classmethod
    def import_dbapi(cls) -> Any:
        return InlineModule()

    @classmethod
    def get_pool_class(cls, _url: URL) -> type[Pool]:
        return AsyncAdaptedQueuePool

    def get_driver_connection(self, connection: Any) -> Any:
        return connection.driver_connection

    def do_terminate(self, dbapi_connection: Any) -> None:
        dbapi_connection.terminate()


registry.register("sqlite.inline", __name__, "InlineDialect")


async def _in_thread(work: Callable[[], T], interrupt: Callable[[], None] | None = None) -> T:
    """Return what `work` returns. A cancellation waits for its end: nothing else may touch the connection before."""
    running = asyncio.get_running_loop().run_in_executor(threads, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if interrupt is not None:
            interrupt()
        await asyncio.wait({running})
        running.exception()  # seen: whatever came of it, the caller is gone
        raise
