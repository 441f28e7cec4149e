"""The embedded index: LanceDB tables on local disk, one of words and one for each embedding space.

Words are indexed from a column of terms split at spaces. Rows hold no text: the catalogue has that, and the index
can be made anew from it. LanceDB's asynchronous client works on its own threads, so nothing here blocks the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
from lancedb.index import BTree
from lancedb.table import AsyncTable

from services.retrieval.adapters.fresh_vectors import FreshVectors
from services.retrieval.adapters.fresh_words import FreshWords
from services.retrieval.adapters.lance_places import NOWHERE, Places
from services.retrieval.adapters.lance_rows import (
    any_of,
    columns_of,
    quote,
    quoted,
    split_at_spaces,
    vectors_name,
    vectors_schema,
    words_schema,
)
from services.retrieval.adapters.lance_upkeep import LanceUpkeep
from services.retrieval.domain.search import ChunkVector, IndexedChunk, Match, Scope
from services.retrieval.ports import Purge

CHUNKS = "chunks"
SHOWN = ["chunk_id", "passage_id", "index"]
# Brute force over this many vectors is exact and takes a few milliseconds; the approximate index comes above it.
FLAT_LIMIT = 20_000
# Measured at 100 k vectors of 384 dimensions: recall@10 is 0.94 without refining, 1.0 with these.
REFINE, PROBES = 5, 40
# New vectors are compared one by one until they are folded in, and new words are kept in memory beside. So writes fold,
# not a timer. Folding writes the table anew, so a large one waits for a tenth of its rows.
FOLD_AFTER = 2_000
FOLD_SHARE = 10
FOLD_AT_MOST = 30_000
# Each write makes a fragment of its own, and every search and write opens them all.
FOLD_AFTER_WRITES = 100
# Tables of more rows are folded in a process of their own.
FOLD_BESIDE = 10_000
# Searches read the version that was there when a fold began: this is many times what a fold takes, by the table's rows.
KEEP_VERSIONS = timedelta(minutes=1)
KEEP_FOR_ROWS = 100_000
# Chunks taken up into memory between two turns of the event loop.
SLICE = 10
# LanceDB works in as many threads as there are cores but two, at least one: on a small machine every search then waits
# behind a fold's pieces. Threads that share the cores do not.
THREADS = 4
# A row keeps its number when a fold writes the table anew, so what the indexes say of it stays true: half the work.
STABLE_ROWS = {"new_table_enable_stable_row_ids": "true"}
# Most that the store keeps in memory of a table's indexes and of its metadata; by itself it would take gigabytes.
INDEX_CACHE, METADATA_CACHE = 512 * 2**20, 128 * 2**20

log = logging.getLogger(__name__)


class LanceIndex:
    """Implements the port ChunkIndex."""

    def __init__(self, directory: Path, connection: lancedb.AsyncConnection) -> None:
        self._directory = directory
        self._connection = connection
        self._upkeep = LanceUpkeep(directory)
        self._tables: dict[str, AsyncTable] = {}
        self._writes: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        self._enough: dict[str, int] = {}
        self._places: dict[str, Places] = {}
        # What is not folded in yet. It is missing while the table may have other such rows, or vectors have no index:
        # then the store scans them.
        self._fresh: FreshWords | None = None
        self._fresh_vectors: dict[str, FreshVectors] = {}
        # Whether something was written since the last round of upkeep.
        self._busy = False
        self._opening = asyncio.Lock()
        # One writer at a time: LanceDB resolves conflicts by retrying, which under load costs more than waiting.
        self._writing = asyncio.Lock()

    @classmethod
    async def open(cls, directory: Path) -> LanceIndex:
        """Open the index in `directory`, made when missing."""
        await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
        # Read when the first table is opened, and an operator's own choice stands.
        os.environ.setdefault("LANCE_CPU_THREADS", str(max(THREADS, os.cpu_count() or 1)))
        return cls(directory, await _connect(directory))

    async def add(self, chunks: Sequence[IndexedChunk]) -> None:
        if not chunks:
            return
        table = await self._words()
        columns = columns_of(chunks)
        columns["tokens"] = [chunk.tokens for chunk in chunks]
        await self._upsert(table, pa.table(columns, schema=words_schema()), chunks=chunks)

    async def add_vectors(self, space: str, vectors: Sequence[ChunkVector]) -> None:
        if not vectors:
            return
        size = len(vectors[0].values)
        table = await self._vectors(space, size)
        columns = columns_of(vectors)
        columns["vector"] = [vector.values for vector in vectors]
        await self._upsert(table, pa.table(columns, schema=vectors_schema(size)), vectors=vectors)

    async def lexical(self, terms: Sequence[str], scope: Scope, limit: int) -> list[Match]:
        if not terms or not scope.sources:
            return []
        table = await self._words()
        within = (await self._places_of(table)).within(scope)
        if within == NOWHERE:
            return []
        # Both of one moment: a fold puts a new table and an empty memory in their place.
        table, fresh = self._tables[CHUNKS], self._fresh
        recent = fresh.search(terms, scope, limit) if fresh else []
        query = table.query().nearest_to_text(any_of(terms))
        if fresh:
            query = query.fast_search()
        if within:
            query = query.where(within)
        rows = await query.select([*SHOWN, "_score"]).limit(limit).to_list()
        return _in_turn([_match(row, row["_score"]) for row in rows], recent, limit)

    async def nearest(self, space: str, vector: Sequence[float], scope: Scope, limit: int) -> list[Match]:
        table = await self._existing_vectors(space)
        if table is None or not scope.sources:
            return []
        within = (await self._places_of(table)).within(scope)
        if within == NOWHERE:
            return []
        table, fresh = self._tables[table.name], self._fresh_vectors.get(table.name)
        recent = fresh.nearest(vector, scope, limit) if fresh else []
        query = table.query().nearest_to(list(vector)).distance_type("cosine").refine_factor(REFINE).nprobes(PROBES)
        if fresh:
            query = query.fast_search()
        if within:
            query = query.where(within)
        rows = await query.select([*SHOWN, "_distance"]).limit(limit).to_list()
        found = {match.chunk_id: match for row in rows for match in [_match(row, 1.0 - row["_distance"])]}
        found.update((match.chunk_id, match) for match in recent)
        return sorted(found.values(), key=lambda match: -match.score)[:limit]

    async def vectors(self, space: str, scope: Scope, chunk_ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
        table = await self._existing_vectors(space)
        if table is None or not chunk_ids:
            return {}
        table, fresh = self._tables[table.name], self._fresh_vectors.get(table.name)
        kept = dict(fresh.vectors(scope, chunk_ids)) if fresh else {}
        wanted = [one for one in chunk_ids if one not in kept]
        if not wanted:
            return kept
        # A few rows are found by their ids and judged here; a second condition would be looked up for every row.
        shown = ["chunk_id", "vector", "tenant", "source_id", "document_id"]
        query = table.query().where(f"chunk_id IN ({quoted(wanted)})")
        if fresh:
            query = query.fast_search()
        rows = await query.select(shown).limit(len(wanted)).to_list()
        return kept | {row["chunk_id"]: row["vector"] for row in rows if _holds(scope, row)}

    async def delete(self, purge: Purge) -> None:
        conditions = {"tenant": purge.tenant, "source_id": purge.source_id}
        conditions |= {k: v for k, v in (("document_id", purge.document_id), ("revision", purge.revision)) if v}
        where = " AND ".join(f"{column} = {quote(value)}" for column, value in conditions.items())
        for table in await self._all():
            places = await self._places_of(table)
            async with self._writing:
                await self._tables[table.name].delete(where)
                fresh = self._fresh if table.name == CHUNKS else self._fresh_vectors.get(table.name)
                if fresh is not None:
                    fresh.drop(purge)
                if not purge.document_id:
                    places.forget(purge.tenant, purge.source_id)

    async def count(self, tenant: str, source_id: str) -> tuple[int, int]:
        where = f"tenant = {quote(tenant)} AND source_id = {quote(source_id)}"
        words = await (await self._words()).count_rows(where)
        vectors = [await t.count_rows(where) for t in await self._all() if t.name != CHUNKS]
        return words, sum(vectors)

    async def maintain(self) -> None:
        for table in await self._all():
            scanned = 1 if table.name == CHUNKS and self._fresh is None else FOLD_AFTER
            if await self._unfolded(table) >= scanned:
                async with self._writing:
                    # What is searched meanwhile may be as old as the last write: nothing is cleaned up here.
                    await self._fold(table.name, clean=False)
            if table.name != CHUNKS:
                await self._index_vectors(table.name)
        if not self._busy:
            # Between two loads its memory is better spent; the next one starts it anew.
            await self._upkeep.close()
        self._busy = False

    async def close(self) -> None:
        await self._upkeep.close()
        for table in self._tables.values():
            table.close()  # type: ignore[no-untyped-call]
        self._tables.clear()
        self._connection.close()  # type: ignore[no-untyped-call]

    async def _index_vectors(self, name: str) -> None:
        table = await self._connection.open_table(name)
        if await table.count_rows() < FLAT_LIMIT:
            return
        if any("vector" in index.columns for index in await table.list_indices()):
            return
        # Beside writes: it reads one version and is added to the newest.
        if await self._upkeep.index_vectors(name):
            async with self._writing:
                await self._renew(name)

    async def _fold(self, name: str, *, clean: bool = True) -> None:
        """Bring every row into the indexes and small fragments together; whoever calls this holds `_writing`.

        Searches go on in what was there before until the new indexes are in memory.
        """
        table = await self._connection.open_table(name)
        rows = await table.count_rows()
        old = KEEP_VERSIONS * (1 + rows / KEEP_FOR_ROWS) if clean else None
        if rows < FOLD_BESIDE:
            await table.optimize(cleanup_older_than=old)
        elif not await self._upkeep.fold(name, old):
            return
        await self._renew(name)
        self._writes[name] = self._rows[name] = 0
        self._enough[name] = min(max(FOLD_AFTER, rows // FOLD_SHARE), FOLD_AT_MOST)

    async def _renew(self, name: str) -> None:
        """Search the newest version from here on, once its indexes are in memory."""
        # With a memory of its own: a common one keeps what is read often, which are the indexes of the version before.
        table = await (await _connect(self._directory)).open_table(name)
        for index in await table.list_indices():
            try:
                await table.prewarm_index(index.name)
            except RuntimeError as failure:
                log.info("%s of %s is read when it is searched: %s", index.name, name, failure)
        self._put(name, table, complete=await self._complete(table))

    async def _complete(self, table: AsyncTable) -> bool:
        """Return whether the indexes of the table have all its rows, and vectors have one of their own."""
        searched = "tokens" if table.name == CHUNKS else "vector"
        indexed = any(searched in index.columns for index in await table.list_indices())
        return indexed and await self._unfolded(table) == 0

    def _put(self, name: str, table: AsyncTable, *, complete: bool) -> None:
        """Search this table from here on, with nothing in memory beside, or by scanning when it is not complete."""
        self._tables[name] = table
        if name == CHUNKS:
            self._fresh = FreshWords() if complete else None
        else:
            self._fresh_vectors.pop(name, None)
            if complete:
                self._fresh_vectors[name] = FreshVectors()

    async def _unfolded(self, table: AsyncTable) -> int:
        """Return how many rows the indexes of the table have not seen yet."""
        rows = await table.count_rows()
        unindexed = [rows - (index.num_indexed_rows or 0) for index in await table.list_indices()]
        return max(unindexed, default=0)

    async def _upsert(
        self,
        table: AsyncTable,
        rows: pa.Table,
        *,
        chunks: Sequence[IndexedChunk] = (),
        vectors: Sequence[ChunkVector] = (),
    ) -> None:
        places = await self._places_of(table)
        async with self._writing:
            # A fold that was under way has put a new one in its place.
            table = self._tables[table.name]
            places.add(rows)
            if self._fresh is not None:
                for first in range(0, len(chunks), SLICE):
                    self._fresh.add(chunks[first : first + SLICE])
                    await asyncio.sleep(0)
            if (fresh := self._fresh_vectors.get(table.name)) is not None:
                for first in range(0, len(vectors), SLICE):
                    fresh.add(vectors[first : first + SLICE])
                    await asyncio.sleep(0)
            merge = table.merge_insert("chunk_id").when_matched_update_all().when_not_matched_insert_all()
            await merge.execute(rows)
            self._busy = True
            self._writes[table.name] += 1
            self._rows[table.name] += rows.num_rows
            enough = self._enough.get(table.name, FOLD_AFTER)
            if self._rows[table.name] >= enough or self._writes[table.name] >= FOLD_AFTER_WRITES:
                await self._fold(table.name)

    async def _places_of(self, table: AsyncTable) -> Places:
        if table.name not in self._places:
            async with self._opening:
                if table.name not in self._places:
                    rows = await table.query().select(["tenant", "source_id"]).to_arrow()
                    self._places[table.name] = Places(rows)
        return self._places[table.name]

    async def _words(self) -> AsyncTable:
        return await self._table(CHUNKS, words_schema())

    async def _vectors(self, space: str, size: int) -> AsyncTable:
        return await self._table(vectors_name(space), vectors_schema(size))

    async def _existing_vectors(self, space: str) -> AsyncTable | None:
        name = vectors_name(space)
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
                table = await self._open_or_create(name, schema)
                self._put(name, table, complete=await self._complete(table))
            return self._tables[name]

    async def _open_or_create(self, name: str, schema: pa.Schema | None) -> AsyncTable:
        if schema is None or name in await self._names():
            return await self._connection.open_table(name)
        table = await self._connection.create_table(name, schema=schema, exist_ok=True, storage_options=STABLE_ROWS)
        if name == CHUNKS:
            await table.create_index("tokens", config=split_at_spaces())
        for column in ("chunk_id", "document_id", "source_id"):
            await table.create_index(column, config=BTree())
        return table


async def _connect(directory: Path) -> lancedb.AsyncConnection:
    # The folder is this process's alone: looking for another's writes before every read would only cost time.
    session = lancedb.Session(index_cache_size_bytes=INDEX_CACHE, metadata_cache_size_bytes=METADATA_CACHE)
    return await lancedb.connect_async(directory, read_consistency_interval=None, session=session)


def _in_turn(settled: Sequence[Match], recent: Sequence[Match], limit: int) -> list[Match]:
    """Return two lists as one, by rank: their scores count how rare a word is among different chunks."""
    if not recent:
        return list(settled)
    pairs = chain.from_iterable(zip_longest(settled, recent))
    # A chunk that is being written again may stand in both.
    found = {match.chunk_id: match for match in pairs if match is not None}
    return list(found.values())[:limit]


def _match(row: Mapping[str, Any], score: float) -> Match:
    return Match(chunk_id=row["chunk_id"], passage_id=row["passage_id"], index=row["index"], score=score)


def _holds(scope: Scope, row: Mapping[str, Any]) -> bool:
    in_documents = scope.documents is None or row["document_id"] in scope.documents
    return row["tenant"] == scope.tenant and row["source_id"] in scope.sources and in_documents
