"""Owners of sessions in SQL."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.database import reading
from services.sandbox.adapters.tables import from_micros, sessions, to_micros
from services.sandbox.domain import Limits, Owner, Session


class SqlSessions:
    """`SessionStore` over one engine."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def add(self, session: Session) -> None:
        limits = session.limits
        row = {
            "session_id": session.session_id,
            "tenant": session.owner.tenant,
            "user": session.owner.user,
            "node": session.node,
            "wall": limits.wall,
            "cpu": limits.cpu,
            "memory_bytes": limits.memory_bytes,
            "pids": limits.pids,
            "created_at": to_micros(session.created_at),
            "used_at": to_micros(session.used_at),
        }
        async with self._engine.begin() as connection:
            await connection.execute(sessions.insert().values(row))

    async def find(self, session_id: str, owner: Owner) -> Session | None:
        found = await self._select(
            sessions.c.session_id == session_id, sessions.c.tenant == owner.tenant, sessions.c.user == owner.user
        )
        return found[0] if found else None

    async def touch(self, session_id: str, at: datetime) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(
                sessions.update().where(sessions.c.session_id == session_id).values(used_at=to_micros(at))
            )

    async def remove(self, session_id: str) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(sessions.delete().where(sessions.c.session_id == session_id))

    async def of_owner(self, owner: Owner, node: str) -> list[Session]:
        return await self._select(
            sessions.c.tenant == owner.tenant, sessions.c.user == owner.user, sessions.c.node == node
        )

    async def stale(self, node: str, *, used_before: datetime, created_before: datetime) -> list[Session]:
        return await self._select(
            sessions.c.node == node,
            sa.or_(sessions.c.used_at < to_micros(used_before), sessions.c.created_at < to_micros(created_before)),
        )

    async def count(self, node: str) -> int:
        query = sa.select(sa.func.count()).select_from(sessions).where(sessions.c.node == node)
        async with reading(self._engine).connect() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def clear(self, node: str) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(sessions.delete().where(sessions.c.node == node))

    async def _select(self, *conditions: Any) -> list[Session]:
        query = sa.select(sessions).where(*conditions).order_by(sessions.c.used_at, sessions.c.session_id)
        async with reading(self._engine).connect() as connection:
            rows = (await connection.execute(query)).all()
        return [
            Session(
                session_id=row.session_id,
                owner=Owner(tenant=row.tenant, user=row.user),
                node=row.node,
                limits=Limits(wall=row.wall, cpu=row.cpu, memory_bytes=row.memory_bytes, pids=row.pids),
                created_at=from_micros(row.created_at),
                used_at=from_micros(row.used_at),
            )
            for row in rows
        ]
