"""Memories of users in the database."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Index, LargeBinary, String, Table, Text, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncEngine

from services.orchestrator.adapters.sql.dialect import Instant, before, insert_new, serialize
from services.orchestrator.adapters.sql.tables import metadata
from services.orchestrator.adapters.sql.transactions import looking, writing
from services.orchestrator.domain.text import without_nul
from services.orchestrator.memory.ports import Memory, MemoryFull

memories = Table(
    "memories",
    metadata,
    Column("memory_id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("user_id", String(256), nullable=False),
    Column("text", Text, nullable=False),
    # SHA-256 of the text: the same text is kept once.
    Column("digest", LargeBinary, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("run_id", String(64), nullable=False),
    Column("conversation_id", String(128), nullable=False),
    Index("memories_user", "tenant", "user_id", "created_at"),
    Index("memories_text", "tenant", "user_id", "digest", unique=True),
)


class SqlMemories:
    """Implements MemoryStore."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def add(self, memory: Memory, most: int) -> Memory:
        """Keep a memory, or return the user's one of the same id or text. Raises MemoryFull beyond `most`."""
        row = _row(memory)
        mine = _whose(memory.tenant, memory.user)
        same = mine & or_(memories.c.memory_id == row["memory_id"], memories.c.digest == row["digest"])
        async with writing(self._engine) as connection:
            await serialize(connection, f"memories {memory.tenant} {memory.user}")
            known = (await connection.execute(select(memories).where(same).limit(1))).one_or_none()
            if known is not None:
                return _memory(known)
            count = await connection.scalar(select(func.count()).select_from(memories).where(mine))
            if (count or 0) >= most:
                raise MemoryFull(f"{most} memories are kept, which is the most; the user must erase some first")
            await connection.execute(insert_new(connection, memories).values(**row))
        return memory

    async def list(
        self, tenant: str, user: str, *, limit: int, after: tuple[datetime, str] | None = None
    ) -> Sequence[Memory]:
        """Return the user's memories, newest first, those after (created_at, id) of the last one."""
        statement = select(memories).where(_whose(tenant, user)).limit(limit)
        statement = statement.order_by(memories.c.created_at.desc(), memories.c.memory_id.desc())
        if after is not None:
            at, memory_id = after
            statement = statement.where(before(memories.c.created_at, at, memories.c.memory_id, memory_id))
        async with looking(self._engine) as connection:
            return [_memory(row) for row in await connection.execute(statement)]

    async def remove(self, tenant: str, user: str, memory_id: str) -> bool:
        """Erase one of the user's memories; tell whether there was one."""
        statement = delete(memories).where(_whose(tenant, user), memories.c.memory_id == memory_id)
        async with writing(self._engine) as connection:
            return (await connection.execute(statement)).rowcount > 0

    async def remove_all(self, tenant: str, user: str) -> int:
        """Erase all of the user's memories and return how many there were."""
        async with writing(self._engine) as connection:
            return (await connection.execute(delete(memories).where(_whose(tenant, user)))).rowcount


def _whose(tenant: str, user: str) -> Any:
    return (memories.c.tenant == tenant) & (memories.c.user_id == user)


def _row(memory: Memory) -> dict[str, Any]:
    text = without_nul(memory.text)
    return {
        "memory_id": memory.memory_id,
        "tenant": memory.tenant,
        "user_id": memory.user,
        "text": text,
        "digest": hashlib.sha256(text.encode(errors="replace")).digest(),
        "created_at": memory.created_at,
        "run_id": memory.run_id,
        "conversation_id": memory.conversation_id,
    }


def _memory(row: Any) -> Memory:
    return Memory(
        memory_id=row.memory_id,
        tenant=row.tenant,
        user=row.user_id,
        text=row.text,
        created_at=row.created_at,
        run_id=row.run_id,
        conversation_id=row.conversation_id,
    )
