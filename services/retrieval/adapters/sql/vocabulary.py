"""The vocabulary of a source: how many of its searched passages hold each term."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.chassis.database import reading
from services.retrieval.adapters.sql.tables import passages, vocabulary
from services.retrieval.tokens import terms

_BATCH = 5_000
_PASSAGES = 500


def count_terms(texts: Iterable[str]) -> Counter[str]:
    """Return how many of the texts hold each term; the empty term stands for all of them."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update({"", *terms(text)})
    return counts


async def add_terms(connection: AsyncConnection, source_id: str, counts: Mapping[str, int]) -> None:
    """Add the counts of new passages."""
    insert = postgresql_insert if connection.dialect.name == "postgresql" else sqlite_insert
    statement = insert(vocabulary)
    statement = statement.on_conflict_do_update(
        index_elements=["source_id", "term"],
        set_={"passages": vocabulary.c.passages + statement.excluded.passages},
    )
    # In one order, so that two writers on PostgreSQL cannot lock each other out.
    rows = [{"source_id": source_id, "term": term, "passages": counts[term]} for term in sorted(counts)]
    for at in range(0, len(rows), _BATCH):
        await connection.execute(statement, rows[at : at + _BATCH])


async def revision_terms(engine: AsyncEngine, document_id: str, revision: str) -> Counter[str]:
    """Return the counts of a revision's passages, counted in a thread and outside of any writing transaction."""
    # A summary repeats its document: its terms were never counted.
    of_revision = sa.and_(passages.c.document_id == document_id, passages.c.revision == revision)
    query = sa.select(passages.c.ordinal, passages.c.text).where(of_revision).order_by(passages.c.ordinal)
    counts: Counter[str] = Counter()
    after = -1
    while True:
        # A part at a time: a document may be larger than what the memory should hold.
        part = query.where(passages.c.ordinal > after).limit(_PASSAGES)
        async with reading(engine).begin() as connection:
            rows = (await connection.execute(part)).all()
        counts.update(await asyncio.to_thread(count_terms, [row.text for row in rows]))
        if len(rows) < _PASSAGES:
            return counts
        after = rows[-1].ordinal


async def subtract_terms(connection: AsyncConnection, source_id: str, counts: Mapping[str, int]) -> None:
    """Take away the counts of passages that go."""
    if not counts:
        return
    key = sa.and_(vocabulary.c.source_id == source_id, vocabulary.c.term == sa.bindparam("of_term"))
    statement = vocabulary.update().where(key).values(passages=vocabulary.c.passages - sa.bindparam("fewer"))
    rows = [{"of_term": term, "fewer": counts[term]} for term in sorted(counts)]
    for at in range(0, len(rows), _BATCH):
        await connection.execute(statement, rows[at : at + _BATCH])
    await connection.execute(vocabulary.delete().where(vocabulary.c.source_id == source_id, vocabulary.c.passages <= 0))
