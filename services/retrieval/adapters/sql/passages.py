"""Passages of the searched revisions in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.database import reading
from services.retrieval.adapters.sql.rows import to_passage
from services.retrieval.adapters.sql.tables import documents, passages, vocabulary
from services.retrieval.domain.library import SUMMARY, Document, Passage, passage_id
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

    async def summary(self, document: Document) -> str:
        query = sa.select(passages.c.text).where(passages.c.id == passage_id(document.revision, SUMMARY))
        async with self._read.begin() as connection:
            return (await connection.execute(query)).scalar_one_or_none() or ""

    async def around(self, passage: Passage) -> tuple[str, str]:
        if passage.is_summary:
            return "", ""
        query = sa.select(passages.c.ordinal, passages.c.text).where(
            passages.c.ordinal >= 0,
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
            .where(_searched(document), passages.c.ordinal >= start)
            .order_by(passages.c.ordinal)
            .limit(limit)
        )
        async with self._read.begin() as connection:
            return [to_passage(row) for row in await connection.execute(query)]

    async def ordinal_at(self, document: Document, offset: int) -> int:
        query = sa.select(sa.func.max(passages.c.ordinal)).where(_searched(document), passages.c.start <= offset)
        async with self._read.begin() as connection:
            return (await connection.execute(query)).scalar_one() or 0

    async def page_start(self, document: Document, page: int) -> int:
        query = sa.select(passages.c.start, passages.c.spans).where(_searched(document)).order_by(passages.c.ordinal)
        async with self._read.begin() as connection:
            rows = (await connection.execute(query)).all()
        places = [(page_, row.start + start) for row in rows for start, _, _, page_ in json.loads(row.spans)]
        # Short pages share a child, which names the first of them: it is the nearest place before.
        reached = max((at for at, _ in places if at <= page), default=0)
        return next((start for at, start in places if at == reached), 0)

    async def characters(self, document: Document) -> int:
        query = (
            sa.select(passages.c.start + sa.func.length(passages.c.text))
            .where(_searched(document))
            .order_by(passages.c.ordinal.desc())
            .limit(1)
        )
        async with self._read.begin() as connection:
            return (await connection.execute(query)).scalar_one_or_none() or 0

    async def term_counts(self, scope: Scope, terms: Sequence[str]) -> TermCounts:
        query = (
            sa.select(vocabulary.c.term, sa.func.sum(vocabulary.c.passages).label("passages"))
            .where(vocabulary.c.source_id.in_(scope.sources), vocabulary.c.term.in_(["", *terms]))
            .group_by(vocabulary.c.term)
        )
        async with self._read.begin() as connection:
            counts = {row.term: int(row.passages) for row in await connection.execute(query)}
        return TermCounts(passages=counts.pop("", 0), holding=counts)


def _searched(document: Document) -> sa.ColumnElement[bool]:
    """The passages of the document's searched revision."""
    return sa.and_(
        passages.c.document_id == document.id, passages.c.revision == document.revision, passages.c.ordinal >= 0
    )
