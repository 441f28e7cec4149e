"""Searches and embeddings as spans, numbers and one log line: wrapped around what does the work."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from opentelemetry.trace import SpanKind

from services.chassis import names
from services.chassis.identity import Principal
from services.chassis.telemetry import Telemetry
from services.retrieval.domain.search import Found, Question
from services.retrieval.ports import Embedder, EmbedPurpose

log = logging.getLogger(__name__)
SCOPE = "services.retrieval"


class Searching(Protocol):
    """Answers questions."""

    async def run(self, principal: Principal, question: Question) -> Found: ...


class ObservedSearch:
    """A search that is seen. The question itself stays out of telemetry."""

    def __init__(self, search: Searching, telemetry: Telemetry) -> None:
        self._search = search
        self._tracer = telemetry.tracer(SCOPE)
        self._duration = telemetry.histogram(SCOPE, names.RETRIEVAL_DURATION)
        self._hits = telemetry.histogram(SCOPE, names.RETRIEVAL_HITS)
        self._score = telemetry.histogram(SCOPE, names.RETRIEVAL_SCORE)
        self._empty = telemetry.counter(SCOPE, names.RETRIEVAL_EMPTY)

    async def run(self, principal: Principal, question: Question) -> Found:
        asked = question.sources[0] if len(question.sources) == 1 else ""
        attributes: dict[str, str | int] = {
            names.GEN_AI_OPERATION_NAME: "retrieval",
            names.GEN_AI_RETRIEVAL_TOP_K: question.top_k,
        }
        if asked:
            attributes[names.GEN_AI_DATA_SOURCE_ID] = asked
        name = f"{names.SPAN_RETRIEVAL} {asked}".strip()
        with self._tracer.start_as_current_span(name, kind=SpanKind.INTERNAL, attributes=attributes) as span:
            found = await self._search.run(principal, question)
            best = found.hits[0].score if found.hits else None
            span.set_attribute(names.RETRIEVAL_STAGES, list(found.stages))
            span.set_attribute(names.RETRIEVAL_HITS_COUNT, len(found.hits))
            if best is not None:
                span.set_attribute(names.RETRIEVAL_BEST_SCORE, best)
            log.info(
                "searched",
                extra={
                    "event": names.EVENT_RETRIEVAL_SEARCHED,
                    "stages": list(found.stages),
                    "hits": len(found.hits),
                    "best_score": best,
                },
            )
        self._record(found, best)
        return found

    def _record(self, found: Found, best: float | None) -> None:
        self._duration.record(found.took)
        self._hits.record(len(found.hits))
        if best is not None:
            self._score.record(best)
        if not found.hits:
            self._empty.add(1)


class ObservedEmbedder:
    """An embedder that is seen."""

    def __init__(self, embedder: Embedder, telemetry: Telemetry) -> None:
        self._embedder = embedder
        self._tracer = telemetry.tracer(SCOPE)

    @property
    def space(self) -> str:
        return self._embedder.space

    async def embed(self, texts: Sequence[str], purpose: EmbedPurpose) -> list[list[float]]:
        attributes: dict[str, str | int] = {
            names.GEN_AI_OPERATION_NAME: "embeddings",
            names.GEN_AI_REQUEST_MODEL: self.space,
            names.EMBEDDINGS_BATCH_SIZE: len(texts),
        }
        name = f"{names.SPAN_EMBEDDINGS} {self.space}"
        with self._tracer.start_as_current_span(name, kind=SpanKind.CLIENT, attributes=attributes):
            return await self._embedder.embed(texts, purpose)

    async def close(self) -> None:
        await self._embedder.close()
