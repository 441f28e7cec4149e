"""The queue of vectors still to make: columns of the documents table, claimed by lease."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.clock import Clock
from services.chassis.database import reading
from services.retrieval.adapters.sql.rows import to_document
from services.retrieval.adapters.sql.tables import documents, micros
from services.retrieval.domain.library import DocumentState
from services.retrieval.ports import EmbedJob

# Longer than one batch on a busy machine; two workers with one job do no harm but work.
LEASE = timedelta(minutes=2)


class SqlEmbedQueue:
    """Implements the port EmbedQueue."""

    def __init__(self, engine: AsyncEngine, clock: Clock, lease: timedelta = LEASE) -> None:
        self._engine = engine
        self._clock = clock
        self._lease = lease

    async def recover(self) -> None:
        if self._engine.dialect.name == "sqlite":
            now = micros(self._clock.now())
            async with self._engine.begin() as connection:
                await connection.execute(
                    documents.update().where(documents.c.embed_after > now).values(embed_after=now)
                )

    async def claim(self, space: str) -> EmbedJob | None:
        now = self._clock.now()
        due = (
            sa.select(documents.c.id)
            .where(documents.c.embed_after <= micros(now))
            .order_by(documents.c.embed_after)
            .limit(1)
            .with_for_update(skip_locked=True)
            .scalar_subquery()
        )
        # Vectors of another space are no progress in this one.
        kept = sa.case((documents.c.space == space, documents.c.embedded), else_=0)
        take = (
            documents.update()
            .where(documents.c.id == due)
            .values(
                embed_after=micros(now + self._lease),
                embed_attempts=documents.c.embed_attempts + 1,
                embedded=kept,
                space=space,
            )
            .returning(documents)
        )
        async with self._engine.begin() as connection:
            row = (await connection.execute(take)).first()
        if row is None:
            return None
        return EmbedJob(document=to_document(row), done=row.embedded, attempts=row.embed_attempts)

    async def advance(self, job: EmbedJob, done: int) -> bool:
        until = micros(self._clock.now() + self._lease)
        return await self._update(job, {"embedded": done, "embed_after": until, "embed_attempts": 0})

    async def finish(self, job: EmbedJob) -> None:
        settled = sa.case(
            (documents.c.state == DocumentState.EMBEDDING.value, DocumentState.DONE.value), else_=documents.c.state
        )
        await self._update(job, {"embedded": documents.c.passages, "embed_after": None, "state": settled})

    async def postpone(self, job: EmbedJob, seconds: float) -> None:
        again = micros(self._clock.now() + timedelta(seconds=seconds))
        await self._update(job, {"embed_after": again})

    async def enqueue_stale(self, space: str) -> int:
        stale = sa.and_(
            documents.c.revision != "",
            documents.c.space != space,
            documents.c.embed_after.is_(None),
        )
        async with self._engine.begin() as connection:
            queued = await connection.execute(
                documents.update().where(stale).values(embed_after=micros(self._clock.now()), embed_attempts=0)
            )
            return queued.rowcount

    async def lagging(self, source_ids: Sequence[str]) -> list[str]:
        query = (
            sa.select(documents.c.source_id)
            .where(documents.c.embed_after.is_not(None), documents.c.source_id.in_(source_ids))
            .distinct()
        )
        async with reading(self._engine).begin() as connection:
            return [row.source_id for row in await connection.execute(query)]

    async def _update(self, job: EmbedJob, values: dict[str, object]) -> bool:
        this = sa.and_(documents.c.id == job.document.id, documents.c.revision == job.document.revision)
        async with self._engine.begin() as connection:
            done = await connection.execute(documents.update().where(this).values(values))
            return done.rowcount == 1
