"""Sources and their documents: what is kept, in which state, cut into which passages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

# The ordinal of a document's summary among its passages, which count from 0.
SUMMARY = -1
# Part of every revision: raise it when parsing or cutting changes, and the next ingest of a file replaces its chunks.
PIPELINE = "1"


class DocumentState(StrEnum):
    """Where a document stands. A document in EMBEDDING is searchable by words; its vectors follow."""

    QUEUED = "queued"
    PARSING = "parsing"
    INDEXING = "indexing"
    EMBEDDING = "embedding"
    DONE = "done"
    FAILED = "failed"

    @property
    def settled(self) -> bool:
        """Whether an upload has nothing more to wait for."""
        return self in (DocumentState.EMBEDDING, DocumentState.DONE, DocumentState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One subject of a source's vocabulary and the words that name it."""

    name: str
    synonyms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A named set of documents. Everyone of the tenant reads a shared one; a private one is its owner's alone."""

    id: str
    tenant: str
    name: str
    owner: str
    description: str
    shared: bool
    created_at: datetime
    topics: tuple[Topic, ...] = ()
    retriever: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCounts:
    """How much is in a source, how many passages still wait for vectors and documents for their summary."""

    documents: int = 0
    passages: int = 0
    vectors_pending: int = 0
    summaries_pending: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One file of a source, identified by its path there. `revision` is the one that is searched, empty before any."""

    id: str
    tenant: str
    source_id: str
    path: str
    title: str = ""
    media_type: str = ""
    size: int = 0
    state: DocumentState = DocumentState.QUEUED
    reason: str = ""
    message: str = ""
    passages: int = 0
    ingested_at: datetime
    content_hash: str = ""
    url: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    revision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A complete file that waits on local disk: `staged` names it there, `content_hash` is the SHA-256 of its bytes."""

    tenant: str
    source_id: str
    path: str
    staged: str
    size: int
    content_hash: str
    url: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A child chunk: characters [start, end) of its passage's text, with the place that text stands in."""

    start: int
    end: int
    heading: str = ""
    page: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A parent block of a document: what is shown and cited. Offsets count characters of the clean text."""

    id: str
    tenant: str
    source_id: str
    document_id: str
    revision: str
    ordinal: int
    text: str
    start: int
    spans: tuple[Span, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def is_summary(self) -> bool:
        return self.ordinal == SUMMARY

    def chunk_id(self, index: int) -> str:
        """Return the id of the child at `index`."""
        return f"{self.id}-{index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One step of one file's ingest."""

    path: str
    state: DocumentState
    document_id: str = ""
    reason: str = ""
    message: str = ""
    passages: int = 0
    unchanged: bool = False


def revision_of(document_id: str, content_hash: str) -> str:
    """Return the revision that ingesting this content makes: equal content, equal revision, equal chunk ids."""
    return _short(document_id, content_hash, PIPELINE)


def passage_id(revision: str, ordinal: int) -> str:
    """Return the id of the passage at `ordinal`; a repeated ingest writes the same ids."""
    return _short(revision, str(ordinal))


def _short(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
