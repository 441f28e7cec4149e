"""Retrievers and the dispatcher that asks them: candidates for a question, from every source that answers in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from services.chassis.errors import InvalidRequest, ServiceError
from services.retrieval.calibrate import Anchors, cosines
from services.retrieval.domain.library import Source
from services.retrieval.domain.search import Candidate, Notice, Scope
from services.retrieval.ports import ChunkIndex, Embedder, EmbedPurpose
from services.retrieval.rank import fuse
from services.retrieval.tokens import query_terms

log = logging.getLogger(__name__)

DEFAULT = "hybrid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """How a hybrid retriever works: entries of each list, and the share of the vectors in the fusion."""

    pool: int = 50
    vector_weight: float = 0.5
    # Cosines are looked up for this many fused candidates that only the lexical list named.
    judged: int = 24


class Retriever(Protocol):
    """Finds candidates, best first."""

    async def retrieve(self, question: str, words: str, scope: Scope) -> list[Candidate]:
        """Return candidates by the meaning of the question and by these words of it."""


class HybridRetriever:
    """Words and vectors side by side, fused by rank; words alone without an embedder, and when the embedder fails."""

    def __init__(self, index: ChunkIndex, embedder: Embedder | None, mix: Mix, anchors: Anchors | None = None) -> None:
        self._index = index
        self._embedder = embedder
        self._anchors = anchors
        self._mix = mix

    async def retrieve(self, question: str, words: str, scope: Scope) -> list[Candidate]:
        async with asyncio.TaskGroup() as group:
            words_task = group.create_task(self._index.lexical(query_terms(words), scope, self._mix.pool))
            vector_task = group.create_task(self._vector(question))
        lexical, vector = words_task.result(), vector_task.result()
        if vector is None or self._embedder is None:
            return fuse(lexical, (), vector_weight=self._mix.vector_weight)
        space = self._embedder.space
        nearest = await self._index.nearest(space, vector, scope, self._mix.pool)
        fused = fuse(lexical, nearest, vector_weight=self._mix.vector_weight)
        return await self._with_cosines(fused, question, vector, scope)

    async def _vector(self, question: str) -> list[float] | None:
        if self._embedder is None:
            return None
        try:
            return (await self._embedder.embed([question], EmbedPurpose.QUERY))[0]
        except ServiceError as failure:
            log.warning("searching by words alone: %s", failure, extra={"event": "retrieval.embedder_failed"})
            return None

    async def _with_cosines(
        self, fused: list[Candidate], question: str, vector: Sequence[float], scope: Scope
    ) -> list[Candidate]:
        """Give the best candidates their cosines, also those that only words found: all are judged alike."""
        assert self._embedder is not None
        judged = fused[: self._mix.judged]
        kept = await self._index.vectors(self._embedder.space, scope, [one.chunk_id for one in judged])
        if not kept:
            return judged
        rows = list(kept.values())
        plain = dict(zip(kept, cosines(vector, rows), strict=True))
        pairing = self._anchors.across(question) if self._anchors else None
        across = dict(zip(kept, pairing.cosines(vector, rows), strict=True)) if pairing else {}
        return [
            replace(one, cosine=plain[one.chunk_id], across=across.get(one.chunk_id)) if one.chunk_id in kept else one
            for one in judged
        ]


@dataclass(frozen=True, slots=True)
class _Asked:
    question: str
    words: str


class Dispatcher:
    """Asks each retriever about its sources side by side, under one deadline; a source that fails is left out."""

    def __init__(self, retrievers: Mapping[str, Retriever], *, seconds: float) -> None:
        self._retrievers = dict(retrievers)
        self._seconds = seconds

    async def retrieve(
        self, question: str, words: str, sources: Sequence[Source], scope: Scope, *, retriever: str = ""
    ) -> tuple[list[Candidate], list[Notice]]:
        """Return the candidates of all sources, best first, and a notice for each source that failed."""
        groups: dict[str, list[Source]] = {}
        for source in sources:
            groups.setdefault(retriever or source.retriever or DEFAULT, []).append(source)
        async with asyncio.TaskGroup() as tasks:
            asked = [
                tasks.create_task(self._group(self._named(name), _Asked(question, words), members, scope))
                for name, members in groups.items()
            ]
        candidates = [one for task in asked for one in task.result()[0]]
        notices = [notice for task in asked for notice in task.result()[1]]
        return sorted(candidates, key=lambda one: -one.fused), notices

    def check(self, name: str) -> None:
        """Raise InvalidRequest when no retriever has this name."""
        if name and name not in self._retrievers:
            known = ", ".join(sorted(self._retrievers))
            raise InvalidRequest(f"there is no retriever '{name}'; use one of {known}")

    def _named(self, name: str) -> Retriever:
        self.check(name)
        return self._retrievers[name]

    async def _group(
        self, retriever: Retriever, asked: _Asked, members: Sequence[Source], scope: Scope
    ) -> tuple[list[Candidate], list[Notice]]:
        together = Scope(tenant=scope.tenant, sources=tuple(s.id for s in members), documents=scope.documents)
        try:
            async with asyncio.timeout(self._seconds):
                return await retriever.retrieve(asked.question, asked.words, together), []
        except Exception as failure:  # noqa: BLE001  # any fault of a store is that store's alone
            if len(members) == 1:
                return [], [_failed(members[0], failure)]
        return await self._one_by_one(retriever, asked, members, scope)

    async def _one_by_one(
        self, retriever: Retriever, asked: _Asked, members: Sequence[Source], scope: Scope
    ) -> tuple[list[Candidate], list[Notice]]:
        async with asyncio.TaskGroup() as tasks:
            alone = [tasks.create_task(self._group(retriever, asked, [one], scope)) for one in members]
        return (
            [candidate for task in alone for candidate in task.result()[0]],
            [notice for task in alone for notice in task.result()[1]],
        )


def _failed(source: Source, failure: Exception) -> Notice:
    log.warning(
        "source %s failed",
        source.name,
        exc_info=failure,
        extra={"event": "retrieval.source_failed", "source": source.id},
    )
    return Notice(
        code="source_failed",
        text=f"The source '{source.name}' did not answer and was left out.",
        source_id=source.id,
    )
