"""The search: question, keywords, topics; floor, collapse, excerpt. The steps and their constants are in Tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from services.chassis.clock import Clock
from services.chassis.identity import Principal
from services.retrieval import rank
from services.retrieval.calibrate import Anchors, Calibration, question_terms
from services.retrieval.domain import filters
from services.retrieval.domain.library import Source
from services.retrieval.domain.search import (
    Candidate,
    Found,
    Hit,
    HitKind,
    Located,
    Notice,
    Provenance,
    Question,
    Scope,
    Stage,
    place,
)
from services.retrieval.excerpt import excerpt
from services.retrieval.ports import Documents, EmbedQueue, Passages, Reranker, Rewriter, Rewritten, Sources
from services.retrieval.rank import Scored
from services.retrieval.retrieve import Dispatcher
from services.retrieval.rewrite import keywords, topics_left_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Constants of the search. Scores are calibrated; characters count the shown text."""

    floor: float = 0.30
    enough: float = 0.50
    top_k: int = 6
    hit_characters: int = 2000
    total_characters: int = 12_000
    least_characters: int = 200
    judged: int = 24
    keyword_terms: int = 8
    topic_searches: int = 3
    diversity: float = 0.0
    keywords: bool = True
    topics: bool = True


@dataclass(slots=True)
class _Attempt:
    """One search while it runs."""

    question: Question
    asked: str
    translation: str
    sources: Sequence[Source]
    scope: Scope
    hits: list[Scored] = field(default_factory=list)
    # The best hit of each topic that was searched for: it is shown though others score higher.
    for_topics: list[Scored] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    notices: dict[tuple[str, str], Notice] = field(default_factory=dict)

    @property
    def best(self) -> float:
        return max((1.0 if hit.score is None else hit.score for hit in self.hits), default=0.0)


class Search:
    """Answers questions from sources."""

    def __init__(
        self,
        sources: Sources,
        documents: Documents,
        passages: Passages,
        queue: EmbedQueue,
        dispatcher: Dispatcher,
        tuning: Tuning,
        anchors: Anchors | None,
        clock: Clock,
        *,
        rewriter: Rewriter,
        reranker: Reranker | None = None,
    ) -> None:
        self._sources = sources
        self._documents = documents
        self._passages = passages
        self._queue = queue
        self._dispatcher = dispatcher
        self._tuning = tuning
        self._anchors = anchors
        self._clock = clock
        self._rewriter = rewriter
        self._reranker = reranker

    async def run(self, principal: Principal, question: Question) -> Found:
        """Return what answers the question; no hits when nothing reaches the floor."""
        started = self._clock.monotonic()
        attempt = await self._attempt(principal, question)
        await self._search(attempt)
        hits = await self._shown(attempt)
        return Found(
            hits=tuple(hits),
            notices=tuple(attempt.notices.values()),
            stages=tuple(attempt.stages),
            took=self._clock.monotonic() - started,
        )

    async def _attempt(self, principal: Principal, question: Question) -> _Attempt:
        self._dispatcher.check(question.retriever)
        condition = filters.parse(question.filter)
        if question.sources:
            found = {s.id: s for s in [await self._sources.find(principal, name) for name in question.sources]}
            sources = list(found.values())
        else:
            sources = await self._sources.readable(principal)
        scope = Scope(tenant=principal.tenant, sources=tuple(source.id for source in sources))
        if condition is not None and sources:
            documents = await self._documents.matching(scope, condition)
            scope = Scope(tenant=scope.tenant, sources=scope.sources, documents=documents)
        # A question without a history stands by itself; whether it wants a translation shows when it is searched.
        rewritten = Rewritten(text=question.text)
        if question.history:
            rewritten = await self._rewriter.rewrite(question.text, question.history)
        return _Attempt(
            question=question,
            asked=rewritten.text,
            translation=rewritten.translation,
            sources=sources,
            scope=scope,
        )

    async def _search(self, attempt: _Attempt) -> None:
        if not attempt.sources or attempt.scope.documents == ():
            return
        tuning = self._tuning
        await self._stage(attempt, Stage.QUESTION, attempt.asked, judged_by=attempt.asked)
        if attempt.best < tuning.enough and not attempt.question.history:
            attempt.translation = (await self._rewriter.rewrite(attempt.asked, ())).translation
        if attempt.translation and attempt.best < tuning.enough:
            await self._stage(attempt, Stage.QUESTION, attempt.translation, judged_by=attempt.translation)
        if tuning.keywords and attempt.best < tuning.enough:
            counts = await self._passages.term_counts(attempt.scope, question_terms(attempt.asked))
            shorter = keywords(attempt.asked, counts, tuning.keyword_terms)
            if shorter and shorter != attempt.asked:
                await self._stage(attempt, Stage.KEYWORDS, shorter, judged_by=attempt.asked)
        if tuning.topics:
            shown = [hit.located.passage.text for hit in rank.collapse(attempt.hits)[: tuning.top_k]]
            vocabulary = [topic for source in attempt.sources for topic in source.topics]
            for topic in topics_left_out(attempt.asked, vocabulary, shown)[: tuning.topic_searches]:
                await self._stage(attempt, Stage.TOPIC, topic, judged_by=topic)
        for source_id in await self._queue.lagging(attempt.scope.sources) if self._anchors else ():
            name = next(source.name for source in attempt.sources if source.id == source_id)
            told = f"Part of '{name}' is searched by words alone; its vectors are still being made."
            self._notice(attempt, Notice(code="vectors_lag", text=told, source_id=source_id))

    async def _stage(self, attempt: _Attempt, stage: Stage, text: str, *, judged_by: str) -> None:
        """Search once more. Keywords are judged by the question they ask in other words, all else by itself."""
        # Cosines are those of the question itself: a shorter text lies nearer to everything.
        candidates, notices = await self._dispatcher.retrieve(
            judged_by, text, attempt.sources, attempt.scope, retriever=attempt.question.retriever
        )
        for notice in notices:
            self._notice(attempt, notice)
        if stage not in attempt.stages:
            attempt.stages.append(stage)
        scored = await self._scored(attempt, stage, judged_by, candidates[: self._tuning.judged])
        attempt.hits = rank.merge([attempt.hits, scored])
        if stage is Stage.TOPIC:
            attempt.for_topics.extend(scored[:1])

    async def _scored(
        self, attempt: _Attempt, stage: Stage, question: str, candidates: Sequence[Candidate]
    ) -> list[Scored]:
        if not candidates:
            return []
        located = await self._passages.locate(attempt.scope, list({one.passage_id for one in candidates}))
        counts = await self._passages.term_counts(attempt.scope, question_terms(question))
        calibration = Calibration(question, counts, self._anchors)
        scored = []
        for candidate in candidates:
            where = located.get(candidate.passage_id)
            if where is None or candidate.index >= len(where.passage.spans):
                continue  # replaced or deleted since the index was asked
            score = calibration.score(_judged_text(where, candidate.index), candidate.cosine, candidate.across)
            if score >= self._tuning.floor:
                scored.append(Scored(candidate=candidate, located=where, score=score, stage=stage))
        return sorted(scored, key=lambda hit: hit.order, reverse=True)

    async def _shown(self, attempt: _Attempt) -> list[Hit]:
        limit = attempt.question.top_k or self._tuning.top_k
        room = attempt.question.max_characters or self._tuning.total_characters
        parents = rank.collapse(attempt.hits)
        if self._reranker is not None:
            parents = await self._reranker.rerank(attempt.asked, parents)
        hits: list[Hit] = []
        parents = rank.passages_over_summaries(parents)
        chosen = rank.diversify(parents, limit, self._tuning.diversity)
        for scored in rank.with_reserved(chosen, attempt.for_topics, limit):
            if room < min(self._tuning.least_characters, self._tuning.hit_characters):
                told = f"Only {len(hits)} passages fit; ask for more characters or a narrower question."
                self._notice(attempt, Notice(code="truncated", text=told))
                break
            hit = _hit(scored, attempt.asked, min(self._tuning.hit_characters, room))
            room -= len(hit.text)
            hits.append(hit)
        return hits

    @staticmethod
    def _notice(attempt: _Attempt, notice: Notice) -> None:
        attempt.notices.setdefault((notice.code, notice.source_id), notice)


def _judged_text(located: Located, index: int) -> str:
    """Return a child with its place: what a reader would know of it."""
    span = located.passage.spans[index]
    return f"{located.title}\n{span.heading}\n{located.passage.text[span.start : span.end]}"


def _hit(scored: Scored, question: str, limit: int) -> Hit:
    passage, candidate = scored.located.passage, scored.candidate
    span = passage.spans[candidate.index]
    shown = excerpt(passage.text, span, question, limit)
    return Hit(
        passage_id=passage.id,
        source_id=passage.source_id,
        document_id=passage.document_id,
        title=scored.located.title,
        where=place(span),
        text=shown.text,
        url=scored.located.url,
        score=scored.score,
        kind=HitKind.SUMMARY if passage.is_summary else HitKind.PASSAGE,
        provenance=Provenance(
            lexical_rank=candidate.lexical_rank,
            vector_rank=candidate.vector_rank,
            fused=candidate.fused,
            stage=scored.stage,
            start=passage.start + shown.start,
            end=passage.start + shown.end,
        ),
    )
