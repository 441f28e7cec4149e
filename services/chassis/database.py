"""Databases: one engine by URL, SQLite by default, and migrations run from code at start."""

from __future__ import annotations

import contextlib
import logging
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Dialect, Executable, event, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from services.chassis import sqlite_inline, sqlite_prepared

log = logging.getLogger(__name__)

BUSY_TIMEOUT = 5.0
_PRAGMAS = ("synchronous=FULL", "foreign_keys=ON", "journal_mode=WAL")


class SqlRows(Protocol):
    """What services use of a statement's outcome; SQLAlchemy's CursorResult is one. A row has its columns by name."""

    @property
    def rowcount(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def all(self) -> Sequence[Any]: ...

    def first(self) -> Any: ...

    def one(self) -> Any: ...

    def one_or_none(self) -> Any: ...

    def scalar_one(self) -> Any: ...

    def mappings(self) -> Any: ...


class SqlConnection(Protocol):
    """What services use of a connection; SQLAlchemy's AsyncConnection is one."""

    @property
    def dialect(self) -> Dialect: ...

    async def execute(self, statement: Executable, parameters: Any = None) -> SqlRows: ...

    async def scalar(self, statement: Executable, parameters: Any = None) -> Any: ...

    async def scalars(self, statement: Executable, parameters: Any = None) -> Any: ...


def database_url(url: str, data_dir: Path, service: str) -> str:
    """Return `url`, or the service's own SQLite file under `data_dir` (created if missing) when it is empty."""
    if url:
        return url
    data_dir.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{(data_dir / f'{service}.sqlite3').resolve()}"


def open_engine(url: str) -> AsyncEngine:
    """Return an engine for `sqlite:///…`, whatever driver it names, or `postgresql+asyncpg://…`; nothing connects yet.

    SQLite gets WAL, synchronous=FULL, foreign keys, a busy timeout of 5 s, and transactions that begin IMMEDIATE, so
    that a transaction which reads before it writes cannot fail half-way with SQLITE_BUSY.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return create_async_engine(url, pool_pre_ping=True)
    inline = parsed.set(drivername=sqlite_inline.DRIVER)
    engine = create_async_engine(inline, connect_args={"timeout": BUSY_TIMEOUT})
    sqlite_prepared.prepare(engine, partial(_connect_sqlite, engine))
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_immediate)
    event.listen(engine.sync_engine, "invalidate", _end_transaction)
    return engine


def transaction(
    engine: AsyncEngine, *, read_only: bool = False, relaxed: bool = False, at_once: bool = False
) -> AbstractAsyncContextManager[SqlConnection]:
    """Open a transaction: committed at the end, or rolled back by an exception. On SQLite the short way is taken.

    One that is `read_only` takes no lock that others write with. The commit of a `relaxed` one does not wait for the
    disk on SQLite: it is there within a twentieth of a second, or with the next commit, and only a failure of the
    machine in between can undo it. One that begins `at_once` does not give the loop away first, as one of many should.
    """
    connections = sqlite_prepared.connections_of(engine)
    if connections is None or engine.sync_engine.get_execution_options().get("aside", False):
        return _plain(reading(engine) if read_only else engine)
    return connections.transaction(read_only=read_only, relaxed=relaxed, at_once=at_once)


@asynccontextmanager
async def _plain(engine: AsyncEngine) -> AsyncIterator[SqlConnection]:
    async with engine.begin() as connection:
        yield connection


def _connect_sqlite(engine: AsyncEngine, *, relaxed: bool) -> sqlite_inline.InlineConnection:
    """Return a connection outside of the engine's pool, like those in it."""
    arguments, options = engine.dialect.create_connect_args(engine.url)
    made = engine.dialect.loaded_dbapi.connect(*arguments, timeout=BUSY_TIMEOUT, **options)
    assert isinstance(made, sqlite_inline.InlineConnection)
    if add_functions := engine.dialect.on_connect():
        add_functions(made)
    for pragma in _PRAGMAS:
        made.driver_connection.execute(f"PRAGMA {pragma}").close()
    if relaxed:
        made.driver_connection.execute("PRAGMA synchronous=NORMAL").close()
        made.relaxed = True
    return made


def _prepare_sqlite(connection: Any, record: object) -> None:
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_immediate(connection: Connection) -> None:
    options = connection.get_execution_options()
    driver: Any = connection.connection.dbapi_connection
    driver.aside = options.get("aside", False)
    connection.exec_driver_sql("BEGIN" if options.get("read_only", False) else "BEGIN IMMEDIATE")


def _end_transaction(connection: Any, record: object, error: BaseException | None) -> None:
    """End the transaction of a connection that is thrown away because its user was cancelled in the middle.

    Closing alone does not: SQLite keeps a connection, its transaction and with it the write lock of the whole database,
    as long as one unfinished statement of it is referred to, and the traceback of the cancellation refers to one.
    """
    if connection is not None:
        with contextlib.suppress(sqlite3.Error, ValueError):
            connection.rollback()


def aside(engine: AsyncEngine) -> AsyncEngine:
    """Return a view of `engine` for statements that look at much: on SQLite they run in a thread, not on the loop."""
    return engine.execution_options(aside=True)


def reading(engine: AsyncEngine) -> AsyncEngine:
    """Return a view of `engine` whose transactions only read, so that on SQLite they do not take the write lock."""
    return engine.execution_options(read_only=True)


async def migrate(engine: AsyncEngine, migrations: str) -> None:
    """Bring the database to the newest schema; `migrations` is `package:directory` and holds `versions/`.

    Safe with several replicas starting at once: the upgrade is one transaction that PostgreSQL serialises by an
    advisory lock and SQLite by its write lock. A schema of a later version is left as it is: one version of the suite
    works with the schema of the next, so that both may serve while one replaces the other.
    """
    package, _, directory = migrations.partition(":")
    with as_file(files(package) / directory) as folder:
        newest = newest_revision(folder)
        async with reading(engine).connect() as connection:
            current = await connection.run_sync(current_revision)
        if current == newest:
            return
        if current is not None and current not in revisions_of(folder):
            log.warning("the database has the schema of a later version, %s; it stays as it is", current)
            return
        # Alembic is loaded only by a start that has something to migrate; most have not.
        from services.chassis.migrations import upgrade

        async with engine.begin() as connection:
            await connection.run_sync(upgrade, folder)


def newest_revision(folder: Path) -> str:
    """Return the revision under `folder` that no other builds on; raises ValueError unless there is exactly one."""
    newest = revisions_of(folder) - _named(folder, "down_revision")
    if len(newest) != 1:
        raise ValueError(f"expected one newest revision in {folder}, found {sorted(newest) or 'none'}")
    return newest.pop()


def revisions_of(folder: Path) -> set[str]:
    """Return every revision under `folder`."""
    return _named(folder, "revision")


def _named(folder: Path, name: str) -> set[str]:
    pattern = re.compile(rf"^{name}\b[^=]*=\s*[\"'](\w+)", re.MULTILINE)
    sources = (path.read_text(encoding="utf-8") for path in (folder / "versions").glob("*.py"))
    return {revision for source in sources for revision in pattern.findall(source)}


def current_revision(connection: Connection) -> str | None:
    """Return the schema revision that the database is at, None for one that was never migrated."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if revision is None else str(revision)
