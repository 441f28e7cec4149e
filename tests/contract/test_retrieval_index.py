"""What every chunk index does: LanceDB on disk, and a real Weaviate server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.retrieval.adapters.lance_index import LanceIndex
from services.retrieval.adapters.weaviate_index import WeaviateIndex
from services.retrieval.domain.search import ChunkVector, IndexedChunk, Scope
from services.retrieval.ports import ChunkIndex, Purge
from services.retrieval.tokens import index_text, query_terms
from tests.support.retrieval_weaviate import Weaviate, weaviate

__all__ = ["weaviate"]

SPACE = "test/4"
TENANT = "o'neil & söhne"


@pytest.fixture(params=["lance", "weaviate"])
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ChunkIndex]:
    opened: ChunkIndex
    if request.param == "lance":
        opened = await LanceIndex.open(tmp_path / "index")
    else:
        server: Weaviate = request.getfixturevalue("weaviate")
        opened = await WeaviateIndex.open(server.http, server.grpc, "")
        for source in ("s1", "s2"):
            await opened.delete(Purge(id="", tenant=TENANT, source_id=source))
            await opened.delete(Purge(id="", tenant="rival", source_id=source))
    yield opened
    await opened.close()


def chunk(
    name: str, text: str = "", *, tenant: str = TENANT, source: str = "s1", document: str = "d1", revision: str = "r1"
) -> IndexedChunk:
    return IndexedChunk(
        id=f"{name}-0",
        tenant=tenant,
        source_id=source,
        document_id=document,
        revision=revision,
        passage_id=name,
        index=0,
        tokens=index_text(text),
    )


def vector(
    name: str, values: tuple[float, ...], *, tenant: str = TENANT, source: str = "s1", document: str = "d1"
) -> ChunkVector:
    return ChunkVector(
        id=f"{name}-0",
        tenant=tenant,
        source_id=source,
        document_id=document,
        revision="r1",
        passage_id=name,
        index=0,
        values=values,
    )


def scope(*sources: str, tenant: str = TENANT, documents: tuple[str, ...] | None = None) -> Scope:
    return Scope(tenant=tenant, sources=sources or ("s1",), documents=documents)


async def test_words_find_their_inflections_and_the_better_match_comes_first(index: ChunkIndex) -> None:
    await index.add([chunk("a", "Expenses are reimbursed"), chunk("b", "Reimbursing hotel expenses takes a week")])

    found = await index.lexical(query_terms("reimbursement of a hotel expense"), scope(), 10)

    assert [match.passage_id for match in found] == ["b", "a"]
    assert found[0].score > found[1].score > 0


async def test_chinese_is_found_by_words_inside_a_sentence(index: ChunkIndex) -> None:
    await index.add([chunk("a", "员工出差的住宿费标准为每晚六百元"), chunk("b", "笔记本电脑的使用年限为四年")])

    found = await index.lexical(query_terms("住宿费是多少?"), scope(), 10)

    assert [match.passage_id for match in found] == ["a"]


async def test_a_word_that_is_nowhere_finds_nothing(index: ChunkIndex) -> None:
    await index.add([chunk("a", "Expenses are reimbursed")])

    assert await index.lexical(["xylophon"], scope(), 10) == []
    assert await index.lexical([], scope(), 10) == []


async def test_writing_a_chunk_again_replaces_it(index: ChunkIndex) -> None:
    await index.add([chunk("a", "red")])
    await index.add([chunk("a", "green"), chunk("b", "green")])
    await index.add_vectors(SPACE, [vector("a", (1, 0, 0, 0))])
    await index.add_vectors(SPACE, [vector("a", (0, 1, 0, 0))])

    assert await index.count(TENANT, "s1") == (2, 1)
    assert await index.lexical(["red"], scope(), 10) == []
    assert (await index.nearest(SPACE, (0, 1, 0, 0), scope(), 10))[0].score == pytest.approx(1.0, abs=1e-5)


async def test_vectors_are_found_by_cosine_whatever_their_length(index: ChunkIndex) -> None:
    await index.add_vectors(
        SPACE, [vector("a", (3, 0, 0, 0)), vector("b", (0.5, 0.5, 0, 0)), vector("c", (0, 0, 0, 2))]
    )

    found = await index.nearest(SPACE, (1, 0, 0, 0), scope(), 2)

    assert [match.passage_id for match in found] == ["a", "b"]
    assert [match.score for match in found] == pytest.approx([1.0, 0.7071], abs=1e-3)


async def test_vectors_are_of_the_chunks_asked_for_alone(index: ChunkIndex) -> None:
    await index.add_vectors(SPACE, [vector("a", (1, 0, 0, 0)), vector("b", (0, 1, 0, 0))])

    found = await index.vectors(SPACE, scope(), ["a-0", "missing-0"])

    assert {chunk: list(values) for chunk, values in found.items()} == {"a-0": [1, 0, 0, 0]}


async def test_spaces_do_not_mix(index: ChunkIndex) -> None:
    await index.add_vectors(SPACE, [vector("a", (1, 0, 0, 0))])
    await index.add_vectors("other/2", [vector("b", (1, 0))])

    assert [m.passage_id for m in await index.nearest(SPACE, (1, 0, 0, 0), scope(), 10)] == ["a"]
    assert [m.passage_id for m in await index.nearest("other/2", (1, 0), scope(), 10)] == ["b"]


async def test_nothing_of_another_tenant_source_or_document_is_found(index: ChunkIndex) -> None:
    rows = [
        chunk("mine", "secret plan"),
        chunk("theirs", "secret plan", tenant="rival"),
        chunk("elsewhere", "secret plan", source="s2"),
        chunk("other", "secret plan", document="d2"),
    ]
    await index.add(rows)
    await index.add_vectors(
        SPACE,
        [
            vector("mine", (1, 0, 0, 0)),
            vector("theirs", (1, 0, 0, 0), tenant="rival"),
            vector("elsewhere", (1, 0, 0, 0), source="s2"),
            vector("other", (1, 0, 0, 0), document="d2"),
        ],
    )
    narrow = scope("s1", documents=("d1",))

    assert [m.passage_id for m in await index.lexical(["secret"], narrow, 10)] == ["mine"]
    assert [m.passage_id for m in await index.nearest(SPACE, (1, 0, 0, 0), narrow, 10)] == ["mine"]
    assert dict(await index.vectors(SPACE, narrow, ["theirs-0", "other-0"])) == {}
    assert {m.passage_id for m in await index.lexical(["secret"], scope("s1", "s2"), 10)} == {
        "mine",
        "elsewhere",
        "other",
    }
    assert await index.lexical(["secret"], scope("s1", documents=()), 10) == []


async def test_a_crafted_source_id_does_not_widen_the_search(index: ChunkIndex) -> None:
    await index.add([chunk("theirs", "secret plan", tenant="rival")])

    for crafted in ("s1') OR ('1'='1", "s1' OR tenant = 'rival", "*", 's1"'):
        assert await index.lexical(["secret"], scope(crafted), 10) == []


@pytest.mark.parametrize(
    ("purge", "left"),
    [
        (Purge(id="", tenant=TENANT, source_id="s1", document_id="d1", revision="r1"), {"b", "c", "d"}),
        (Purge(id="", tenant=TENANT, source_id="s1", document_id="d1"), {"c", "d"}),
        (Purge(id="", tenant=TENANT, source_id="s1"), {"d"}),
        (Purge(id="", tenant="rival", source_id="s1"), {"a", "b", "c", "d"}),
    ],
)
async def test_a_purge_drops_chunks_and_vectors_of_what_it_names(
    index: ChunkIndex, purge: Purge, left: set[str]
) -> None:
    rows = [
        chunk("a", "word"),
        chunk("b", "word", revision="r2"),
        chunk("c", "word", document="d2"),
        chunk("d", "word", source="s2"),
    ]
    await index.add(rows)
    await index.add_vectors(SPACE, [vector("a", (1, 0, 0, 0))])

    await index.delete(purge)

    assert {m.passage_id for m in await index.lexical(["word"], scope("s1", "s2"), 10)} == left
    assert bool(await index.nearest(SPACE, (1, 0, 0, 0), scope(), 10)) == ("a" in left)


async def test_upkeep_changes_nothing_that_is_found(index: ChunkIndex) -> None:
    await index.add([chunk(f"p{n}", f"word number{n}") for n in range(3000)])
    await index.delete(Purge(id="", tenant=TENANT, source_id="s1", document_id="none"))

    await index.maintain()
    await index.add([chunk("late", "word number7")])

    assert {m.passage_id for m in await index.lexical(["number7"], scope(), 10)} == {"p7", "late"}
