"""The embedded index folds new rows in while it is searched: nothing that was written is ever out of sight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import lancedb
import numpy as np
import pytest

from services.retrieval.adapters import lance_index
from services.retrieval.adapters.lance_index import LanceIndex
from services.retrieval.domain.search import ChunkVector, IndexedChunk, Scope
from services.retrieval.ports import Purge

SPACE = "test/16"
SCOPE = Scope(tenant="t", sources=("s",))


@pytest.fixture
async def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LanceIndex]:
    monkeypatch.setattr(lance_index, "FOLD_AFTER", 50)
    monkeypatch.setattr(lance_index, "FLAT_LIMIT", 300)
    opened = await LanceIndex.open(tmp_path)
    yield opened
    await opened.close()


def chunk(number: int, tokens: str = "word") -> IndexedChunk:
    return IndexedChunk(
        id=f"p{number}-0",
        tenant="t",
        source_id="s",
        document_id=f"d{number % 7}",
        revision="r",
        passage_id=f"p{number}",
        index=0,
        tokens=tokens,
    )


def vectors(first: int, values: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> list[ChunkVector]:
    return [
        ChunkVector(
            id=f"p{number}-0",
            tenant="t",
            source_id="s",
            document_id="d",
            revision="r",
            passage_id=f"p{number}",
            index=0,
            values=row.tolist(),
        )
        for number, row in enumerate(values, start=first)
    ]


async def test_searches_beside_folds_find_all_that_was_written(index: LanceIndex) -> None:
    await index.add([chunk(number) for number in range(20)])
    written = 20

    async def write() -> None:
        nonlocal written
        for first in range(20, 600, 20):
            await index.add([chunk(number) for number in range(first, first + 20)])
            written = first + 20

    writing = asyncio.create_task(write())
    while not writing.done():
        least = written
        assert len(await index.lexical(["word"], SCOPE, 10_000)) >= least
        if least > 200:
            await index.maintain()
    await writing

    assert len(await index.lexical(["word"], SCOPE, 10_000)) == 600


async def test_what_is_replaced_or_purged_after_a_fold_is_gone(index: LanceIndex) -> None:
    await index.add([chunk(number, "old") for number in range(100)])
    await index.add([chunk(number, "new") for number in range(60)])
    await index.delete(Purge(id="", tenant="t", source_id="s", document_id="d1"))

    old = {match.passage_id for match in await index.lexical(["old"], SCOPE, 1000)}
    new = {match.passage_id for match in await index.lexical(["new"], SCOPE, 1000)}

    assert old == {f"p{number}" for number in range(60, 100) if number % 7 != 1}
    assert new == {f"p{number}" for number in range(60) if number % 7 != 1}


async def test_vectors_are_found_before_and_after_their_index_is_built(index: LanceIndex, tmp_path: Path) -> None:
    drawn = np.random.default_rng(1).standard_normal((420, 16))
    await index.add_vectors(SPACE, vectors(0, drawn[:400]))
    before = await index.nearest(SPACE, drawn[7].tolist(), SCOPE, 3)

    await index.maintain()
    await index.add_vectors(SPACE, vectors(400, drawn[400:]))

    opened = await lancedb.connect_async(tmp_path)
    table = await opened.open_table(next(name for name in (await opened.list_tables()).tables if name != "chunks"))
    assert any("vector" in one.columns for one in await table.list_indices())
    assert await index.nearest(SPACE, drawn[7].tolist(), SCOPE, 3) == before
    assert [m.passage_id for m in await index.nearest(SPACE, drawn[411].tolist(), SCOPE, 1)] == ["p411"]
    kept = await index.vectors(SPACE, SCOPE, ["p411-0", "p7-0", "none-0"])
    assert {one: list(kept[one]) for one in kept} == {
        "p411-0": pytest.approx(drawn[411].tolist(), abs=1e-5),
        "p7-0": pytest.approx(drawn[7].tolist(), abs=1e-5),
    }


async def test_vectors_that_are_not_folded_in_are_replaced_purged_and_kept_in_scope(index: LanceIndex) -> None:
    drawn = np.random.default_rng(1).standard_normal((400, 16))
    await index.add_vectors(SPACE, vectors(0, drawn))
    await index.maintain()
    await index.add_vectors(SPACE, vectors(5, -drawn[5:6]))
    await index.add_vectors(SPACE, vectors(1000, drawn[5:6]))

    async def nearest(*wanted: str, scope: Scope = SCOPE) -> list[str]:
        return [
            m.passage_id for m in await index.nearest(SPACE, drawn[5].tolist(), scope, 999) if m.passage_id in wanted
        ]

    assert await nearest("p5", "p1000") == ["p1000", "p5"]
    assert await nearest("p5", "p1000", scope=Scope(tenant="t", sources=("other",))) == []
    assert await nearest("p5", "p1000", scope=Scope(tenant="t", sources=("s",), documents=("none",))) == []
    await index.delete(Purge(id="", tenant="t", source_id="s", document_id="d"))
    assert await nearest("p5", "p1000") == []
    assert dict(await index.vectors(SPACE, SCOPE, ["p5-0", "p1000-0"])) == {}


async def test_what_was_not_folded_before_a_restart_is_found(index: LanceIndex, tmp_path: Path) -> None:
    await index.add([chunk(number) for number in range(30)])
    again = await LanceIndex.open(tmp_path)
    found = [len(await again.lexical(["word"], SCOPE, 1000))]
    await again.add([chunk(number) for number in range(25, 40)])
    found.append(len(await again.lexical(["word"], SCOPE, 1000)))
    await again.maintain()
    await again.add([chunk(number) for number in range(35, 45)])
    found.append(len(await again.lexical(["word"], SCOPE, 1000)))
    await again.close()

    assert found == [30, 40, 45]


async def test_large_tables_are_folded_beside(
    index: LanceIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lance_index, "FOLD_BESIDE", 10)
    await index.add([chunk(number, "old") for number in range(60)])
    await index.add([chunk(number, "new") for number in range(5)])

    table = await (await lancedb.connect_async(tmp_path)).open_table(lance_index.CHUNKS)
    words = next(one for one in await table.list_indices() if "tokens" in one.columns)
    assert words.num_indexed_rows == 55
    assert len(await index.lexical(["old"], SCOPE, 1000)) == 55
    assert len(await index.lexical(["new"], SCOPE, 1000)) == 5
