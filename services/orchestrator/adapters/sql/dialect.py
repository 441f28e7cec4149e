"""The few places where SQLite and PostgreSQL differ, and how times are stored.

Statements of the hot paths are built once, at import or by the caches here: building one and finding its compiled form
costs ten times what SQLite needs to run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Dialect,
    FunctionElement,
    Table,
    TypeDecorator,
    bindparam,
    func,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.dml import Insert

from services.chassis.database import SqlConnection

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

POSTGRES = "postgresql"
# Notifications carry a run id, with the prefix when the run's owner is concerned, not only its readers.
CHANNEL = "proctor_runs"
OWNER_PREFIX = "owner:"


class Instant(TypeDecorator[datetime]):
    """An aware time as microseconds since 1970: exact, sortable and the same in both databases."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else _EPOCH + timedelta(microseconds=value)


class DatabaseNow(FunctionElement[int]):
    """Milliseconds since 1970 by the database's own clock, at this statement."""

    type = BigInteger()
    inherit_cache = True


@compiles(DatabaseNow, "sqlite")
def _sqlite_now(element: DatabaseNow, compiler: Any, **options: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)"


@compiles(DatabaseNow, "postgresql")
def _postgres_now(element: DatabaseNow, compiler: Any, **options: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"


def lease() -> ColumnElement[int]:
    """Return when a lease of `lease_ms` (a parameter, milliseconds) that begins now ends."""
    return DatabaseNow() + bindparam("lease_ms", type_=BigInteger)


def before(time: ColumnElement[Any], at: datetime, key: ColumnElement[Any], value: str) -> ColumnElement[bool]:
    """Return the condition of rows that follow (at, value) when both columns descend."""
    # Not a tuple comparison: inside one, SQLAlchemy would not store the time as its column does.
    return (time < at) | ((time == at) & (key < value))


def insert_new(connection: SqlConnection | Connection, table: Table) -> Insert:
    """Return an INSERT that leaves a row alone when one with its key exists."""
    return insert_new_into(connection.dialect.name, table)


@lru_cache
def insert_new_into(dialect: str, table: Table) -> Insert:
    """Return what `insert_new` does, for statements that are kept by the dialect's name."""
    if dialect == POSTGRES:
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def upsert(
    connection: SqlConnection | Connection, table: Table, key: tuple[str, ...], changed: tuple[str, ...]
) -> Insert:
    """Return an INSERT that overwrites `changed` of the row with the same `key`."""
    return _upsert(connection.dialect.name, table, key, changed)


@lru_cache
def _upsert(dialect: str, table: Table, key: tuple[str, ...], changed: tuple[str, ...]) -> Insert:
    make = postgresql.insert if dialect == POSTGRES else sqlite.insert
    statement: Any = make(table)
    overwritten: Mapping[str, Any] = {name: statement.excluded[name] for name in changed}
    result: Insert = statement.on_conflict_do_update(index_elements=list(key), set_=overwritten)
    return result


async def serialize(connection: SqlConnection, subject: str) -> None:
    """Let transactions about `subject` pass one at a time until they end. SQLite writes one at a time anyway."""
    if connection.dialect.name == POSTGRES:
        await connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(subject, 0))))


async def signal(connection: SqlConnection, payloads: Sequence[str]) -> None:
    """Tell other processes when this transaction commits. On SQLite there are none."""
    if connection.dialect.name == POSTGRES and payloads:
        await connection.execute(_NOTIFY, {"channel": CHANNEL, "payloads": list(payloads)})


_NOTIFY = text("SELECT pg_notify(:channel, payload) FROM unnest(CAST(:payloads AS text[])) AS payload")
