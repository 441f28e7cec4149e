"""Passages of the searched revisions in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.database import reading
from services.retrieval.adapters.sql.rows import to_passage
from services.retrieval.adapters.sql.tables import documents, passages, vocabulary
from services.retrieval.domain.library import Document, Passage
from services.retrieval.domain.search import Located, Scope, TermCounts


class SqlPassages:
    """Implements the port Passages."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._read = reading(engine)

    async def locate(self, scope: Scope, passage_ids: Sequence[str]) -> Mapping[str, Located]:
        query = (
            sa.select(passages, documents.c.title, documents.c.path, documents.c.url)
            .join(documents, documents.c.id == passages.c.document_id)
            .where(
                passages.c.id.in_(passage_ids),
                passages.c.tenant == scope.tenant,
                passages.c.source_id.in_(scope.sources),
                passages.c.revision == documents.c.revision,
            )
        )
        async with self._read.begin() as connection:
            rows = (await connection.execute(query)).all()
        located = (
            Located(passage=to_passage(row), title=row.title or row.path, path=row.path, url=row.url) for row in rows
        )
        allowed = None if scope.documents is None else set(scope.documents)
        return {one.passage.id: one for one in located if allowed is None or one.passage.document_id in allowed}

    async def around(self, passage: Passage) -> tuple[str, str]:
        query = sa.select(passages.c.ordinal, passages.c.text).where(
            passages.c.document_id == passage.document_id,
            passages.c.revision == passage.revision,
            passages.c.ordinal.in_((passage.ordinal - 1, passage.ordinal + 1)),
        )
        async with self._read.begin() as connection:
            texts = {row.ordinal: row.text for row in await connection.execute(query)}
        return texts.get(passage.ordinal - 1, ""), texts.get(passage.ordinal + 1, "")

    async def of_document(self, document: Document, *, start: int, limit: int) -> list[Passage]:
        query = (
            passages.select()
            .where(
                passages.c.document_id == document.id,
                passages.c.revision == document.revision,
                passages.c.ordinal >= start,
            )
            .order_by(passages.c.ordinal)
            .limit(limit)
        )
        async with self._read.begin() as connection:
            return [to_passage(row) for row in await connection.execute(query)]

    async def term_counts(self, scope: Scope, terms: Sequence[str]) -> TermCounts:
        query = (
            sa.select(vocabulary.c.term, sa.func.sum(vocabulary.c.passages).label("passages"))
            .where(vocabulary.c.source_id.in_(scope.sources), vocabulary.c.term.in_(["", *terms]))
            .group_by(vocabulary.c.term)
        )
        async with self._read.begin() as connection:
            counts = {row.term: int(row.passages) for row in await connection.execute(query)}
        return TermCounts(passages=counts.pop("", 0), holding=counts)
