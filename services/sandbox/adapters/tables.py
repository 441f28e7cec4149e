"""The sandbox's tables. Times are microseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

metadata = sa.MetaData()

executions = sa.Table(
    "executions",
    metadata,
    sa.Column("tenant", sa.String(128), primary_key=True),
    sa.Column("execution_id", sa.String(200), primary_key=True),
    sa.Column("user", sa.String(255), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("node", sa.String(64), nullable=False),
    sa.Column("boot", sa.String(64), nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("finished_at", sa.BigInteger, nullable=True),
)

execution_events = sa.Table(
    "execution_events",
    metadata,
    sa.Column("tenant", sa.String(128), primary_key=True),
    sa.Column("execution_id", sa.String(200), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("facts", sa.Text, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("session_id", sa.String(64), primary_key=True),
    sa.Column("tenant", sa.String(128), nullable=False),
    sa.Column("user", sa.String(255), nullable=False),
    sa.Column("node", sa.String(64), nullable=False),
    sa.Column("wall", sa.Float, nullable=False),
    sa.Column("cpu", sa.Float, nullable=False),
    sa.Column("memory_bytes", sa.BigInteger, nullable=False),
    sa.Column("pids", sa.Integer, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("used_at", sa.BigInteger, nullable=False),
)


def to_micros(at: datetime) -> int:
    """Return `at` as the tables hold it."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def from_micros(value: int) -> datetime:
    """Return the time of a table's value."""
    return _EPOCH + timedelta(microseconds=value)
