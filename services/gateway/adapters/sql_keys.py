"""Keys in a SQL database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.database import reading
from services.gateway.keys import ApiKey

metadata = sa.MetaData()
api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("key_id", sa.String(32), primary_key=True),
    sa.Column("tenant", sa.String(128), nullable=False),
    sa.Column("user_name", sa.String(255), nullable=False),
    sa.Column("name", sa.String(128), nullable=False),
    sa.Column("secret_hash", sa.String(255), nullable=False),
    sa.Column("scopes", sa.JSON, nullable=False),
    sa.Column("group_names", sa.JSON, nullable=False),
    sa.Column("agent", sa.String(128), nullable=False),
    sa.Column("created_by", sa.String(255), nullable=False),
    # Times are microseconds since 1970, which every database orders alike.
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=True),
    sa.Column("revoked_at", sa.BigInteger, nullable=True),
    sa.Column("last_used_at", sa.BigInteger, nullable=True),
    sa.Column("replaces", sa.String(32), nullable=False),
    sa.Index("api_keys_by_tenant", "tenant", "created_at", "key_id"),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SqlKeys:
    """The key store."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._reading = reading(engine)

    async def add(self, key: ApiKey) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(sa.insert(api_keys).values(**_row(key)))

    async def find(self, key_ids: Sequence[str]) -> list[ApiKey]:
        query = sa.select(api_keys).where(api_keys.c.key_id.in_(key_ids))
        async with self._reading.connect() as connection:
            return [_key(row) for row in (await connection.execute(query)).mappings()]

    async def page(self, tenant: str, before: tuple[datetime, str] | None, limit: int) -> list[ApiKey]:
        position = sa.tuple_(api_keys.c.created_at, api_keys.c.key_id)
        query = sa.select(api_keys).where(api_keys.c.tenant == tenant)
        if before is not None:
            query = query.where(position < (micros(before[0]), before[1]))
        query = query.order_by(api_keys.c.created_at.desc(), api_keys.c.key_id.desc()).limit(limit)
        async with self._reading.connect() as connection:
            return [_key(row) for row in (await connection.execute(query)).mappings()]

    async def end(self, tenant: str, key_id: str, *, revoked_at: datetime | None, expires_at: datetime | None) -> bool:
        columns = {api_keys.c.revoked_at: revoked_at, api_keys.c.expires_at: expires_at}
        changes = {
            column.name: sa.case((column < moment, column), else_=moment)
            for column, when in columns.items()
            if when is not None and (moment := micros(when)) is not None
        }
        statement = sa.update(api_keys).where(api_keys.c.tenant == tenant, api_keys.c.key_id == key_id)
        async with self._engine.begin() as connection:
            result = await connection.execute(statement.values(**changes))
        return result.rowcount > 0

    async def used(self, key_id: str, at: datetime) -> None:
        statement = sa.update(api_keys).where(api_keys.c.key_id == key_id).values(last_used_at=micros(at))
        async with self._engine.begin() as connection:
            await connection.execute(statement)


def micros(moment: datetime | None) -> int | None:
    """Return microseconds since 1970."""
    return None if moment is None else (moment - EPOCH) // timedelta(microseconds=1)


def _moment(value: int | None) -> datetime | None:
    return None if value is None else EPOCH + timedelta(microseconds=value)


def _row(key: ApiKey) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "tenant": key.tenant,
        "user_name": key.user,
        "name": key.name,
        "secret_hash": key.secret_hash,
        "scopes": sorted(key.scopes),
        "group_names": sorted(key.groups),
        "agent": key.agent,
        "created_by": key.created_by,
        "created_at": micros(key.created_at),
        "expires_at": micros(key.expires_at),
        "revoked_at": micros(key.revoked_at),
        "last_used_at": micros(key.last_used_at),
        "replaces": key.replaces,
    }


def _key(row: Any) -> ApiKey:
    return ApiKey(
        key_id=row["key_id"],
        tenant=row["tenant"],
        user=row["user_name"],
        name=row["name"],
        secret_hash=row["secret_hash"],
        scopes=frozenset(row["scopes"]),
        groups=frozenset(row["group_names"]),
        agent=row["agent"],
        created_by=row["created_by"],
        created_at=EPOCH + timedelta(microseconds=row["created_at"]),
        expires_at=_moment(row["expires_at"]),
        revoked_at=_moment(row["revoked_at"]),
        last_used_at=_moment(row["last_used_at"]),
        replaces=row["replaces"],
    )
