"""The embedded index: LanceDB tables on local disk, one of words and one for each embedding space.

Words are indexed from a column of terms split at spaces. Rows hold no text: the catalogue has that, and the index
can be made anew from it. LanceDB's asynchronous client works on its own threads, so nothing here blocks the event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
from lancedb.index import FTS, BTree, IvfPq
from lancedb.query import MatchQuery
from lancedb.table import AsyncTable

from services.retrieval.domain.search import ChunkVector, IndexedChunk, Match, Scope
from services.retrieval.ports import Purge
from services.retrieval.tokens import join

CHUNKS = "chunks"
KEYS = ("chunk_id", "tenant", "source_id", "document_id", "revision", "passage_id")
SHOWN = ["chunk_id", "passage_id", "index"]
# Brute force over this many vectors is exact and takes a few milliseconds; the approximate index comes above it.
FLAT_LIMIT = 20_000
# Measured at 100 k vectors of 384 dimensions: recall@10 is 0.94 without refining, 1.0 with these.
REFINE, PROBES = 5, 40
# New rows are searched by scanning until they are folded in; this many scans stay cheap.
FOLD_AFTER = 2_000
# Each write makes a fragment of its own, and every search and write opens them all.
FOLD_AFTER_WRITES = 100
KEEP_VERSIONS = timedelta(minutes=10)


class LanceIndex:
    """Implements the port ChunkIndex."""

    def __init__(self, connection: lancedb.AsyncConnection) -> None:
        self._connection = connection
        self._tables: dict[str, AsyncTable] = {}
        self._writes: Counter[str] = Counter()
        self._opening = asyncio.Lock()
        # One writer at a time: LanceDB resolves conflicts by retrying, which under load costs more than waiting.
        self._writing = asyncio.Lock()

    @classmethod
    async def open(cls, directory: Path) -> LanceIndex:
        """Open the index in `directory`, made when missing."""
        await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
        # The folder is this process's alone: looking for another's writes before every read would only cost time.
        return cls(await lancedb.connect_async(directory, read_consistency_interval=None))

    async def add(self, chunks: Sequence[IndexedChunk]) -> None:
        if not chunks:
            return
        table = await self._words()
        columns = _columns(chunks)
        columns["tokens"] = [chunk.tokens for chunk in chunks]
        await self._upsert(table, pa.table(columns, schema=_words_schema()))

    async def add_vectors(self, space: str, vectors: Sequence[ChunkVector]) -> None:
        if not vectors:
            return
        size = len(vectors[0].values)
        table = await self._vectors(space, size)
        columns = _columns(vectors)
        columns["vector"] = [vector.values for vector in vectors]
        await self._upsert(table, pa.table(columns, schema=_vectors_schema(size)))

    async def lexical(self, terms: Sequence[str], scope: Scope, limit: int) -> list[Match]:
        if not terms or not scope.sources:
            return []
        table = await self._words()
        query = table.query().nearest_to_text(_any_of(terms))
        rows = await query.where(_within(scope)).select([*SHOWN, "_score"]).limit(limit).to_list()
        return [_match(row, row["_score"]) for row in rows]

    async def nearest(self, space: str, vector: Sequence[float], scope: Scope, limit: int) -> list[Match]:
        table = await self._existing_vectors(space)
        if table is None or not scope.sources:
            return []
        query = table.query().nearest_to(list(vector)).distance_type("cosine").refine_factor(REFINE).nprobes(PROBES)
        rows = await query.where(_within(scope)).select([*SHOWN, "_distance"]).limit(limit).to_list()
        return [_match(row, 1.0 - row["_distance"]) for row in rows]

    async def vectors(self, space: str, scope: Scope, chunk_ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
        table = await self._existing_vectors(space)
        if table is None or not chunk_ids:
            return {}
        where = f"{_within(scope)} AND chunk_id IN ({_quoted(chunk_ids)})"
        rows = await table.query().where(where).select(["chunk_id", "vector"]).limit(len(chunk_ids)).to_list()
        return {row["chunk_id"]: row["vector"] for row in rows}

    async def delete(self, purge: Purge) -> None:
        conditions = {"tenant": purge.tenant, "source_id": purge.source_id}
        conditions |= {k: v for k, v in (("document_id", purge.document_id), ("revision", purge.revision)) if v}
        where = " AND ".join(f"{column} = {_quote(value)}" for column, value in conditions.items())
        for table in await self._all():
            async with self._writing:
                await table.delete(where)

    async def count(self, tenant: str, source_id: str) -> tuple[int, int]:
        where = f"tenant = {_quote(tenant)} AND source_id = {_quote(source_id)}"
        words = await (await self._words()).count_rows(where)
        vectors = [await t.count_rows(where) for t in await self._all() if t.name != CHUNKS]
        return words, sum(vectors)

    async def maintain(self) -> None:
        for table in await self._all():
            if self._writes[table.name] < FOLD_AFTER_WRITES and await self._unfolded(table) < FOLD_AFTER:
                continue
            async with self._writing:
                await table.optimize(cleanup_older_than=KEEP_VERSIONS)
            self._writes[table.name] = 0
            if table.name != CHUNKS:
                await self._index_vectors(table)

    async def close(self) -> None:
        for table in self._tables.values():
            table.close()  # type: ignore[no-untyped-call]
        self._tables.clear()
        self._connection.close()  # type: ignore[no-untyped-call]

    async def _index_vectors(self, table: AsyncTable) -> None:
        if await table.count_rows() < FLAT_LIMIT:
            return
        if any("vector" in index.columns for index in await table.list_indices()):
            return
        # Minutes at 100 k vectors, and beside writes: it reads one version and is added to the newest.
        await table.create_index("vector", config=IvfPq(distance_type="cosine"))

    async def _unfolded(self, table: AsyncTable) -> int:
        """Return how many rows the indexes of the table have not seen yet."""
        rows = await table.count_rows()
        unindexed = [rows - (index.num_indexed_rows or 0) for index in await table.list_indices()]
        return max(unindexed, default=0)

    async def _upsert(self, table: AsyncTable, rows: pa.Table) -> None:
        async with self._writing:
            merge = table.merge_insert("chunk_id").when_matched_update_all().when_not_matched_insert_all()
            await merge.execute(rows)
            self._writes[table.name] += 1

    async def _words(self) -> AsyncTable:
        return await self._table(CHUNKS, _words_schema())

    async def _vectors(self, space: str, size: int) -> AsyncTable:
        return await self._table(_vectors_name(space), _vectors_schema(size))

    async def _existing_vectors(self, space: str) -> AsyncTable | None:
        name = _vectors_name(space)
        if name in self._tables:
            return self._tables[name]
        if name not in await self._names():
            return None
        return await self._table(name, None)

    async def _all(self) -> list[AsyncTable]:
        return [await self._table(name, None) for name in await self._names()]

    async def _names(self) -> list[str]:
        return list((await self._connection.list_tables()).tables)

    async def _table(self, name: str, schema: pa.Schema | None) -> AsyncTable:
        if name in self._tables:
            return self._tables[name]
        async with self._opening:
            if name not in self._tables:
                self._tables[name] = await self._open_or_create(name, schema)
            return self._tables[name]

    async def _open_or_create(self, name: str, schema: pa.Schema | None) -> AsyncTable:
        if schema is None or name in await self._names():
            return await self._connection.open_table(name)
        table = await self._connection.create_table(name, schema=schema, exist_ok=True)
        if name == CHUNKS:
            await table.create_index("tokens", config=_split_at_spaces())
        for column in ("chunk_id", "document_id", "source_id"):
            await table.create_index(column, config=BTree())
        return table


def _split_at_spaces() -> FTS:
    return FTS(
        base_tokenizer="whitespace",
        with_position=False,
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
        max_token_length=None,
    )


def _any_of(terms: Sequence[str]) -> Any:
    # Its defaults are given in a way that type checkers do not see.
    return MatchQuery(join(terms), "tokens")  # type: ignore[call-arg]


def _words_schema() -> pa.Schema:
    return pa.schema([*((key, pa.string()) for key in KEYS), ("index", pa.int32()), ("tokens", pa.string())])


def _vectors_schema(size: int) -> pa.Schema:
    vector = pa.list_(pa.float32(), size)
    return pa.schema([*((key, pa.string()) for key in KEYS), ("index", pa.int32()), ("vector", vector)])


def _columns(rows: Sequence[IndexedChunk] | Sequence[ChunkVector]) -> dict[str, list[Any]]:
    return {
        "chunk_id": [row.id for row in rows],
        "tenant": [row.tenant for row in rows],
        "source_id": [row.source_id for row in rows],
        "document_id": [row.document_id for row in rows],
        "revision": [row.revision for row in rows],
        "passage_id": [row.passage_id for row in rows],
        "index": [row.index for row in rows],
    }


def _vectors_name(space: str) -> str:
    return f"vectors_{hashlib.sha256(space.encode()).hexdigest()[:16]}"


def _match(row: Mapping[str, Any], score: float) -> Match:
    return Match(chunk_id=row["chunk_id"], passage_id=row["passage_id"], index=row["index"], score=score)


def _within(scope: Scope) -> str:
    where = f"tenant = {_quote(scope.tenant)} AND source_id IN ({_quoted(scope.sources)})"
    if scope.documents is None:
        return where
    # An empty list is no valid SQL; no id is empty, so this holds for nothing.
    return f"{where} AND document_id IN ({_quoted(scope.documents or ('',))})"


def _quoted(values: Iterable[str]) -> str:
    return ", ".join(map(_quote, values))


def _quote(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
