"""An SQLite file that may be read: opened read-only, with an authorizer that lets nothing else happen."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from services.orchestrator.tools.sql.ports import DatabaseTerms, QueryFailed, Rows, TableShape

T = TypeVar("T")
# Instructions of SQLite's machine between two looks at the clock: well under a millisecond.
_STEPS = 1000
# The longest text or blob that a query may make, in bytes.
_LONGEST = 10_000_000
_RECURSIVE = 33  # SQLITE_RECURSIVE, which sqlite3 does not name before Python 3.12
_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, _RECURSIVE})
_DANGEROUS = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit", "zeroblob", "randomblob"})
_TABLE_FUNCTIONS = frozenset({"json_each", "json_tree"})


class SqliteDatabase:
    """Implements ReadableDatabase. Each query has a connection of its own, in a thread that its deadline ends."""

    dialect = "sqlite"

    def __init__(self, path: Path, terms: DatabaseTerms) -> None:
        self._path = path
        self.terms = terms
        self._allowed = frozenset(table.lower() for table in terms.tables)

    async def shapes(self) -> Sequence[TableShape]:
        return await self._in_thread(self._shapes)

    async def query(self, statement: str) -> Rows:
        def work(connection: sqlite3.Connection) -> Rows:
            connection.set_authorizer(self._authorize)
            cursor = connection.execute(statement)
            rows = cursor.fetchmany(self.terms.max_rows + 1)
            columns = tuple(str(column[0]) for column in cursor.description or ())
            return Rows(columns=columns, rows=tuple(rows[: self.terms.max_rows]), more=len(rows) > self.terms.max_rows)

        return await self._in_thread(work)

    async def _in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        stopped = threading.Event()
        try:
            return await asyncio.to_thread(self._connected, work, stopped)
        finally:
            stopped.set()  # also when the caller was cancelled: the thread must not go on

    def _connected(self, work: Callable[[sqlite3.Connection], T], stopped: threading.Event) -> T:
        end = time.monotonic() + self.terms.seconds
        try:
            connection = sqlite3.connect(f"file:{quote(str(self._path))}?mode=ro", uri=True, timeout=1.0)
        except sqlite3.Error:
            raise QueryFailed(f"the database '{self.terms.name}' cannot be opened") from None
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.set_progress_handler(lambda: stopped.is_set() or time.monotonic() > end, _STEPS)
            return work(connection)
        except sqlite3.Error as error:
            if "interrupted" in str(error):
                seconds = f"{self.terms.seconds:g} s"
                raise QueryFailed(f"the query took longer than {seconds} and was stopped; ask for less") from None
            raise QueryFailed(f"the database refused: {error}") from None
        finally:
            connection.close()

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, view: str | None
    ) -> int:
        del database
        if action == sqlite3.SQLITE_READ:
            return sqlite3.SQLITE_OK if self._may_read((first or "").lower(), view) else sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _DANGEROUS:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY

    def _may_read(self, table: str, view: str | None) -> bool:
        if not self._allowed:
            return not table.startswith("sqlite_")
        # What a view reads is reached by whoever may read the view.
        return table in self._allowed or table in _TABLE_FUNCTIONS or (view or "").lower() in self._allowed

    def _shapes(self, connection: sqlite3.Connection) -> list[TableShape]:
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
            " ORDER BY name"
        ).fetchall()
        return [
            TableShape(
                name=name,
                columns=tuple(
                    (column, kind.lower())
                    for column, kind in connection.execute("SELECT name, type FROM pragma_table_xinfo(?)", (name,))
                ),
            )
            for (name,) in names
            if not self._allowed or name.lower() in self._allowed
        ]
