"""Words that are not folded in yet are found in memory, by the same rules as on disk."""

from __future__ import annotations

from services.retrieval.adapters.fresh_words import FreshWords
from services.retrieval.domain.search import IndexedChunk, Scope
from services.retrieval.ports import Purge


def chunk(name: str, tokens: str, *, tenant: str = "t", source: str = "s", document: str = "d") -> IndexedChunk:
    return IndexedChunk(
        id=f"{name}-0",
        tenant=tenant,
        source_id=source,
        document_id=document,
        revision="r",
        passage_id=name,
        index=0,
        tokens=tokens,
    )


def found(words: FreshWords, *terms: str, scope: Scope | None = None, limit: int = 10) -> list[str]:
    asked = scope or Scope(tenant="t", sources=("s",))
    return [match.passage_id for match in words.search(terms, asked, limit)]


def test_rare_words_and_short_chunks_come_first() -> None:
    words = FreshWords()
    words.add([chunk("a", "travel travel rate"), chunk("b", "travel mileage"), chunk("c", "travel " * 20 + "mileage")])

    assert found(words, "mileage", "travel") == ["b", "c", "a"]
    assert found(words, "mileage", "travel", limit=1) == ["b"]
    assert found(words, "xylophone") == []


def test_a_chunk_that_comes_again_replaces_the_first() -> None:
    words = FreshWords()
    words.add([chunk("a", "old"), chunk("b", "new")])
    words.add([chunk("a", "new")])

    assert found(words, "old") == []
    assert sorted(found(words, "new")) == ["a", "b"]


def test_only_what_is_in_scope_is_found() -> None:
    words = FreshWords()
    words.add(
        [
            chunk("mine", "plan"),
            chunk("theirs", "plan", tenant="rival"),
            chunk("elsewhere", "plan", source="s2"),
            chunk("other", "plan", document="d2"),
        ]
    )

    assert found(words, "plan", scope=Scope(tenant="t", sources=("s",), documents=("d",))) == ["mine"]
    assert sorted(found(words, "plan", scope=Scope(tenant="t", sources=("s", "s2")))) == ["elsewhere", "mine", "other"]


def test_a_purge_drops_what_it_names() -> None:
    words = FreshWords()
    words.add([chunk("a", "plan"), chunk("b", "plan", document="d2"), chunk("c", "plan", source="s2")])

    words.drop(Purge(id="", tenant="t", source_id="s", document_id="d", revision="another"))
    assert sorted(found(words, "plan")) == ["a", "b"]
    words.drop(Purge(id="", tenant="t", source_id="s", document_id="d", revision="r"))
    assert found(words, "plan") == ["b"]
    words.drop(Purge(id="", tenant="t", source_id="s"))
    assert found(words, "plan", scope=Scope(tenant="t", sources=("s", "s2"))) == ["c"]
