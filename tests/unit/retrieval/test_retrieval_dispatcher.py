"""The dispatcher: one failing source is left out with a notice, and no deadline is overrun."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from services.chassis.errors import InvalidRequest
from services.retrieval.domain.library import Source
from services.retrieval.domain.search import Candidate, Scope
from services.retrieval.retrieve import Dispatcher


def source(name: str, retriever: str = "") -> Source:
    return Source(
        id=name,
        tenant="t",
        name=name,
        owner="ann",
        description="",
        shared=True,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        retriever=retriever,
    )


SCOPE = Scope(tenant="t", sources=("good", "bad"))


class Store:
    """Finds one candidate in each source; `broken` ones fail, `slow` ones never answer."""

    def __init__(self, broken: frozenset[str] = frozenset(), slow: frozenset[str] = frozenset()) -> None:
        self.broken = broken
        self.slow = slow
        self.asked: list[tuple[str, ...]] = []

    async def retrieve(self, question: str, words: str, scope: Scope) -> list[Candidate]:
        self.asked.append(scope.sources)
        if self.broken & set(scope.sources):
            raise OSError("disk on fire")
        if self.slow & set(scope.sources):
            await asyncio.Event().wait()
        return [Candidate(chunk_id=name, passage_id=name, index=0, fused=1.0) for name in scope.sources]


async def test_healthy_sources_are_asked_together() -> None:
    store = Store()

    found, notices = await Dispatcher({"hybrid": store}, seconds=5).retrieve(
        "q", "q", [source("good"), source("bad")], SCOPE
    )

    assert store.asked == [("good", "bad")]
    assert {one.chunk_id for one in found} == {"good", "bad"}
    assert notices == []


async def test_a_failing_source_is_left_out_and_named() -> None:
    store = Store(broken=frozenset({"bad"}))

    found, notices = await Dispatcher({"hybrid": store}, seconds=5).retrieve(
        "q", "q", [source("good"), source("bad")], SCOPE
    )

    assert [one.chunk_id for one in found] == ["good"]
    assert [(notice.code, notice.source_id) for notice in notices] == [("source_failed", "bad")]


async def test_a_source_that_never_answers_is_left_out() -> None:
    sources = [source("good", "fast"), source("bad", "stuck")]
    dispatcher = Dispatcher({"fast": Store(), "stuck": Store(slow=frozenset({"bad"}))}, seconds=0.01)

    found, notices = await dispatcher.retrieve("q", "q", sources, SCOPE)

    assert [one.chunk_id for one in found] == ["good"]
    assert [notice.source_id for notice in notices] == ["bad"]


async def test_a_request_may_name_the_retriever_and_an_unknown_one_is_refused() -> None:
    chosen, other = Store(), Store()
    dispatcher = Dispatcher({"hybrid": other, "lexical": chosen}, seconds=5)

    await dispatcher.retrieve("q", "q", [source("good")], SCOPE, retriever="lexical")

    assert (len(chosen.asked), len(other.asked)) == (1, 0)
    with pytest.raises(InvalidRequest, match="hybrid, lexical"):
        dispatcher.check("psychic")
