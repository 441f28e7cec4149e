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
# New rows are searched by scanning until they are folded in: 6 ms of a search by words for each thousand of them. So
# writes fold, not a timer. Folding writes the table anew, so a large one waits for a tenth of its rows.
FOLD_AFTER = 2_000
FOLD_SHARE = 10
# Each write makes a fragment of its own, and every search and write opens them all.
FOLD_AFTER_WRITES = 100
# Nobody but this process reads, and no read takes this long.
KEEP_VERSIONS = timedelta(minutes=1)
# Most that the store keeps in memory of indexes and of metadata; by itself it would take gigabytes.
INDEX_CACHE, METADATA_CACHE = 512 * 2**20, 128 * 2**20


# No row can match.
NOWHERE = "false"


class Places:
    """Which tenants and sources have rows in a table, or had: most conditions then need not be looked up at all.

    At 100,000 rows a condition on the tenant and one on the source cost more than the search itself.
    """

    def __init__(self, rows: pa.Table) -> None:
        pairs = rows.group_by(["tenant", "source_id"]).aggregate([])
        self._known = set(zip(pairs["tenant"].to_pylist(), pairs["source_id"].to_pylist(), strict=True))

    def add(self, rows: pa.Table) -> None:
        """Take note of rows before they are written."""
        # Grouping takes milliseconds however few they are.
        self._known.update(zip(rows["tenant"].to_pylist(), rows["source_id"].to_pylist(), strict=True))

    def forget(self, tenant: str, source: str) -> None:
        """Take note that a source has no row any more."""
        self._known.discard((tenant, source))

    def within(self, scope: Scope) -> str:
        """Return the condition that keeps a search in scope: empty when every row is, NOWHERE when none can be."""
        mine = {(scope.tenant, source) for source in scope.sources} & self._known
        if not mine or scope.documents == ():
            return NOWHERE
        conditions = []
        if mine != self._known:
            sources = {source for _, source in mine}
            conditions.append(f"source_id IN ({_quoted(sorted(sources))})")
            if any(source in sources for tenant, source in self._known if tenant != scope.tenant):
                conditions.append(f"tenant = {_quote(scope.tenant)}")
        if scope.documents is not None:
            conditions.append(f"document_id IN ({_quoted(scope.documents)})")
        return " AND ".join(conditions)


class LanceIndex:
    """Implements the port ChunkIndex."""

    def __init__(self, connection: lancedb.AsyncConnection) -> None:
        self._connection = connection
        self._tables: dict[str, AsyncTable] = {}
        self._writes: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        self._enough: dict[str, int] = {}
        self._places: dict[str, Places] = {}
        self._opening = asyncio.Lock()
        # One writer at a time: LanceDB resolves conflicts by retrying, which under load costs more than waiting.
        self._writing = asyncio.Lock()

    @classmethod
    async def open(cls, directory: Path) -> LanceIndex:
        """Open the index in `directory`, made when missing."""
        await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
        # The folder is this process's alone: looking for another's writes before every read would only cost time.
        session = lancedb.Session(index_cache_size_bytes=INDEX_CACHE, metadata_cache_size_bytes=METADATA_CACHE)
        return cls(await lancedb.connect_async(directory, read_consistency_interval=None, session=session))

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
        within = (await self._places_of(table)).within(scope)
        if within == NOWHERE:
            return []
        query = table.query().nearest_to_text(_any_of(terms))
        if within:
            query = query.where(within)
        rows = await query.select([*SHOWN, "_score"]).limit(limit).to_list()
        return [_match(row, row["_score"]) for row in rows]

    async def nearest(self, space: str, vector: Sequence[float], scope: Scope, limit: int) -> list[Match]:
        table = await self._existing_vectors(space)
        if table is None or not scope.sources:
            return []
        within = (await self._places_of(table)).within(scope)
        if within == NOWHERE:
            return []
        query = table.query().nearest_to(list(vector)).distance_type("cosine").refine_factor(REFINE).nprobes(PROBES)
        if within:
            query = query.where(within)
        rows = await query.select([*SHOWN, "_distance"]).limit(limit).to_list()
        return [_match(row, 1.0 - row["_distance"]) for row in rows]

    async def vectors(self, space: str, scope: Scope, chunk_ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
        table = await self._existing_vectors(space)
        if table is None or not chunk_ids:
            return {}
        # A few rows are found by their ids and judged here; a second condition would be looked up for every row.
        shown = ["chunk_id", "vector", "tenant", "source_id", "document_id"]
        where = f"chunk_id IN ({_quoted(chunk_ids)})"
        rows = await table.query().where(where).select(shown).limit(len(chunk_ids)).to_list()
        return {row["chunk_id"]: row["vector"] for row in rows if _holds(scope, row)}

    async def delete(self, purge: Purge) -> None:
        conditions = {"tenant": purge.tenant, "source_id": purge.source_id}
        conditions |= {k: v for k, v in (("document_id", purge.document_id), ("revision", purge.revision)) if v}
        where = " AND ".join(f"{column} = {_quote(value)}" for column, value in conditions.items())
        for table in await self._all():
            places = await self._places_of(table)
            async with self._writing:
                await table.delete(where)
                if not purge.document_id:
                    places.forget(purge.tenant, purge.source_id)

    async def count(self, tenant: str, source_id: str) -> tuple[int, int]:
        where = f"tenant = {_quote(tenant)} AND source_id = {_quote(source_id)}"
        words = await (await self._words()).count_rows(where)
        vectors = [await t.count_rows(where) for t in await self._all() if t.name != CHUNKS]
        return words, sum(vectors)

    async def maintain(self) -> None:
        for table in await self._all():
            if await self._unfolded(table) >= FOLD_AFTER:
                async with self._writing:
                    await self._fold(table)
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

    async def _fold(self, table: AsyncTable) -> None:
        """Bring every row into the indexes and small fragments together; whoever calls this holds `_writing`."""
        await table.optimize(cleanup_older_than=KEEP_VERSIONS)
        self._writes[table.name] = self._rows[table.name] = 0
        self._enough[table.name] = max(FOLD_AFTER, await table.count_rows() // FOLD_SHARE)

    async def _unfolded(self, table: AsyncTable) -> int:
        """Return how many rows the indexes of the table have not seen yet."""
        rows = await table.count_rows()
        unindexed = [rows - (index.num_indexed_rows or 0) for index in await table.list_indices()]
        return max(unindexed, default=0)

    async def _upsert(self, table: AsyncTable, rows: pa.Table) -> None:
        places = await self._places_of(table)
        async with self._writing:
            places.add(rows)
            merge = table.merge_insert("chunk_id").when_matched_update_all().when_not_matched_insert_all()
            await merge.execute(rows)
            self._writes[table.name] += 1
            self._rows[table.name] += rows.num_rows
            enough = self._enough.get(table.name, FOLD_AFTER)
            if self._rows[table.name] >= enough or self._writes[table.name] >= FOLD_AFTER_WRITES:
                await self._fold(table)

    async def _places_of(self, table: AsyncTable) -> Places:
        if table.name not in self._places:
            async with self._opening:
                if table.name not in self._places:
                    rows = await table.query().select(["tenant", "source_id"]).to_arrow()
                    self._places[table.name] = Places(rows)
        return self._places[table.name]

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


def _holds(scope: Scope, row: Mapping[str, Any]) -> bool:
    in_documents = scope.documents is None or row["document_id"] in scope.documents
    return row["tenant"] == scope.tenant and row["source_id"] in scope.sources and in_documents


def _quoted(values: Iterable[str]) -> str:
    return ", ".join(map(_quote, values))


def _quote(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
