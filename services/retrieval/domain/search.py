"""Questions and what answers them: candidates with their ranks, hits with their score and provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from services.retrieval.domain.library import Passage, Span


class HitKind(StrEnum):
    """What a hit shows."""

    PASSAGE = "passage"
    SUMMARY = "summary"
    WEB = "web"


class Stage(StrEnum):
    """The step of the search that found a hit."""

    QUESTION = "question"
    KEYWORDS = "keywords"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a search may look: sources of one tenant, and only `documents` of them when that is not None."""

    tenant: str
    sources: tuple[str, ...]
    documents: tuple[str, ...] | None = None

    def only(self, source: str) -> Scope:
        """Return this scope narrowed to one of its sources."""
        return Scope(tenant=self.tenant, sources=(source,), documents=self.documents)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedChunk:
    """A child as the index keeps it: where it belongs and the words that find it, separated by spaces."""

    id: str
    tenant: str
    source_id: str
    document_id: str
    revision: str
    passage_id: str
    index: int
    tokens: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkVector:
    """A child's vector, with the same belongings."""

    id: str
    tenant: str
    source_id: str
    document_id: str
    revision: str
    passage_id: str
    index: int
    values: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One entry of a ranked list of an index. `score` is BM25 for words and cosine similarity for vectors."""

    chunk_id: str
    passage_id: str
    index: int
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A chunk that one or both lists named. Ranks count from 1, 0 is absent; `cosine` is None without a vector."""

    chunk_id: str
    passage_id: str
    index: int
    lexical_rank: int = 0
    vector_rank: int = 0
    cosine: float | None = None
    # Its cosine should it be in the other language than the question, about the centres of both (calibrate.Pairing).
    across: float | None = None
    fused: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A passage with what its document says about it."""

    passage: Passage
    title: str
    path: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How a hit was found, and which characters of the document's clean text it shows."""

    lexical_rank: int = 0
    vector_rank: int = 0
    fused: float = 0.0
    stage: Stage = Stage.QUESTION
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One answer of a search. `score` is calibrated, 0 to 1; None when none could be given."""

    passage_id: str
    source_id: str = ""
    document_id: str = ""
    title: str
    where: str = ""
    text: str
    url: str = ""
    score: float | None = None
    kind: HitKind = HitKind.PASSAGE
    provenance: Provenance = field(default_factory=Provenance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something the caller should tell its user; `code` is stable."""

    code: str
    text: str
    source_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One search as asked. Zero limits stand for the defaults."""

    text: str
    sources: tuple[str, ...] = ()
    top_k: int = 0
    max_characters: int = 0
    filter: str = ""
    history: tuple[str, ...] = ()
    retriever: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The answer to a Question: hits, best first, notices, the stages used in order, and seconds it took."""

    hits: tuple[Hit, ...]
    notices: tuple[Notice, ...] = ()
    stages: tuple[Stage, ...] = ()
    took: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TermCounts:
    """How common a question's terms are in the sources searched: passages that hold each, of `passages` in all."""

    passages: int
    holding: Mapping[str, int]


def place(span: Span) -> str:
    """Return where a child stands, for people: page, then heading path."""
    page = f"p. {span.page}" if span.page else ""
    return " · ".join(part for part in (page, span.heading) if part)
