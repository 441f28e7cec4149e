"""The queue of summaries: what the catalogue says is searched, less what this table says is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.clock import Clock
from services.chassis.database import reading
from services.retrieval.adapters.sql.rows import to_document
from services.retrieval.adapters.sql.tables import documents, micros, summaries
from services.retrieval.summary_ports import SummaryJob

# Longer than a model may take; two workers with one job do no harm but work.
LEASE = timedelta(minutes=5)
# A document that a model failed on this often is left without a summary until it changes.
MOST_ATTEMPTS = 8


class SqlSummaryQueue:
    """Implements the port SummaryQueue, for documents of at least `passages` passages."""

    def __init__(self, engine: AsyncEngine, clock: Clock, passages: int, lease: timedelta = LEASE) -> None:
        self._engine = engine
        self._clock = clock
        self._passages = passages
        self._lease = lease

    async def recover(self) -> None:
        if self._engine.dialect.name == "sqlite":
            async with self._engine.begin() as connection:
                await connection.execute(summaries.update().values(due=None))

    async def claim(self, space: str) -> SummaryJob | None:
        now = self._clock.now()
        free = sa.or_(summaries.c.due.is_(None), summaries.c.due <= micros(now))
        moved = summaries.c.space != space
        query = (
            sa.select(documents, summaries.c.attempts, summaries.c.trying)
            .outerjoin(summaries, summaries.c.document_id == documents.c.id)
            .where(self._wanting(moved), free)
            .order_by(documents.c.ingested_at)
            .limit(1)
            .with_for_update(skip_locked=True, of=documents)
        )
        insert = postgresql_insert if self._engine.dialect.name == "postgresql" else sqlite_insert
        async with self._engine.begin() as connection:
            row = (await connection.execute(query)).first()
            if row is None:
                return None
            attempts = 1 + (row.attempts if row.trying == row.revision else 0)
            taken = {"due": micros(now + self._lease), "attempts": attempts, "trying": row.revision}
            fresh = insert(summaries).values(document_id=row.id, revision="", space="", **taken)
            await connection.execute(fresh.on_conflict_do_update(index_elements=["document_id"], set_=taken))
        return SummaryJob(document=to_document(row), attempts=attempts)

    async def finish(self, job: SummaryJob, space: str) -> bool:
        document = job.document
        still = sa.select(documents.c.id).where(
            documents.c.id == document.id, documents.c.revision == document.revision
        )
        done = {"revision": document.revision, "space": space, "due": None, "attempts": 0, "trying": ""}
        async with self._engine.begin() as connection:
            kept = await connection.execute(summaries.update().where(summaries.c.document_id.in_(still)).values(done))
            return kept.rowcount == 1

    async def postpone(self, job: SummaryJob, seconds: float) -> None:
        again = micros(self._clock.now() + timedelta(seconds=seconds))
        async with self._engine.begin() as connection:
            this = summaries.c.document_id == job.document.id
            await connection.execute(summaries.update().where(this).values(due=again))

    async def pending(self, source_ids: Sequence[str]) -> Mapping[str, int]:
        query = (
            sa.select(documents.c.source_id, sa.func.count().label("wanting"))
            .outerjoin(summaries, summaries.c.document_id == documents.c.id)
            .where(self._wanting(sa.false()), documents.c.source_id.in_(source_ids))
            .group_by(documents.c.source_id)
        )
        async with reading(self._engine).begin() as connection:
            return {row.source_id: row.wanting for row in await connection.execute(query)}

    def _wanting(self, moved: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
        """Whether a document is searched, long enough, and has no summary (or, if `moved`, not where it is needed)."""
        missing = sa.or_(summaries.c.document_id.is_(None), summaries.c.revision != documents.c.revision, moved)
        given_up = sa.and_(summaries.c.trying == documents.c.revision, summaries.c.attempts >= MOST_ATTEMPTS)
        return sa.and_(
            documents.c.revision != "",
            documents.c.passages >= self._passages,
            missing,
            sa.or_(summaries.c.document_id.is_(None), sa.not_(given_up)),
        )
