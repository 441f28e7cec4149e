"""Sources in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.clock import Clock, Ids
from services.chassis.database import reading
from services.chassis.identity import Principal
from services.retrieval.adapters.sql.rows import source_values, to_source
from services.retrieval.adapters.sql.tables import documents, micros, purges, sources
from services.retrieval.domain.errors import SourceExists, SourceNotFound
from services.retrieval.domain.library import Source, SourceCounts


class SqlSources:
    """Implements the port Sources."""

    def __init__(self, engine: AsyncEngine, clock: Clock, ids: Ids) -> None:
        self._engine = engine
        self._read = reading(engine)
        self._clock = clock
        self._ids = ids

    async def create(self, source: Source) -> None:
        try:
            async with self._engine.begin() as connection:
                await connection.execute(sources.insert().values(source_values(source)))
        except IntegrityError:
            raise SourceExists(source.name) from None

    async def readable(self, principal: Principal, *, after: str = "", limit: int = 10_000) -> list[Source]:
        query = sources.select().where(_readable_by(principal), sources.c.name > after)
        async with self._read.begin() as connection:
            rows = await connection.execute(query.order_by(sources.c.name).limit(limit))
            return [to_source(row) for row in rows]

    async def find(self, principal: Principal, id_or_name: str) -> Source:
        named = sa.or_(sources.c.id == id_or_name, sources.c.name == id_or_name)
        async with self._read.begin() as connection:
            # A name may look like another source's id; the id wins.
            order = sa.case((sources.c.id == id_or_name, 0), else_=1)
            row = (
                await connection.execute(sources.select().where(_readable_by(principal), named).order_by(order))
            ).first()
        if row is None:
            raise SourceNotFound(id_or_name)
        return to_source(row)

    async def counts(self, source_ids: Sequence[str]) -> Mapping[str, SourceCounts]:
        pending = sa.case((documents.c.embed_after.is_not(None), documents.c.passages - documents.c.embedded), else_=0)
        query = (
            sa.select(
                documents.c.source_id,
                sa.func.count().label("documents"),
                sa.func.sum(documents.c.passages).label("passages"),
                sa.func.sum(pending).label("pending"),
            )
            .where(documents.c.source_id.in_(source_ids))
            .group_by(documents.c.source_id)
        )
        async with self._read.begin() as connection:
            rows = await connection.execute(query)
            return {
                row.source_id: SourceCounts(
                    documents=row.documents, passages=int(row.passages), vectors_pending=int(row.pending)
                )
                for row in rows
            }

    async def remove(self, source: Source) -> int:
        async with self._engine.begin() as connection:
            held = sa.select(sa.func.count()).select_from(documents).where(documents.c.source_id == source.id)
            count = (await connection.execute(held)).scalar_one()
            gone = await connection.execute(sources.delete().where(sources.c.id == source.id))
            if gone.rowcount:
                await connection.execute(
                    purges.insert().values(
                        id=self._ids.new(),
                        tenant=source.tenant,
                        source_id=source.id,
                        document_id="",
                        revision="",
                        created_at=micros(self._clock.now()),
                    )
                )
            return count


def _readable_by(principal: Principal) -> sa.ColumnElement[bool]:
    """Whoever the principal is, nothing outside its tenant; inside, what is shared or its own."""
    return sa.and_(sources.c.tenant == principal.tenant, sa.or_(sources.c.shared, sources.c.owner == principal.user))
