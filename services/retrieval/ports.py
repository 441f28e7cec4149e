"""What retrieval needs from outside, by role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from services.chassis.identity import Principal
from services.retrieval.domain.filters import Condition
from services.retrieval.domain.library import Document, DocumentState, Passage, Source, SourceCounts, Upload
from services.retrieval.domain.search import (
    ChunkVector,
    Hit,
    IndexedChunk,
    Located,
    Match,
    Scope,
    TermCounts,
)
from services.retrieval.domain.text import PlainText
from services.retrieval.portions import CutDocument
from services.retrieval.rank import Scored


class Sources(Protocol):
    """Keeps sources. Reads return only what the principal may see."""

    async def create(self, source: Source) -> None:
        """Keep a new source, or raise SourceExists."""

    async def readable(self, principal: Principal, *, after: str = "", limit: int = 10_000) -> list[Source]:
        """Return sources by name, those after the name `after`."""

    async def find(self, principal: Principal, id_or_name: str) -> Source:
        """Return one source, or raise SourceNotFound."""

    async def counts(self, source_ids: Sequence[str]) -> Mapping[str, SourceCounts]:
        """Return how much is in each source."""

    async def remove(self, source: Source) -> int:
        """Forget the source and all it holds; return how many documents that were. Leaves one Purge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What became of an upload: its document, and whether the same content is there already."""

    document: Document
    unchanged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """Chunks that the index must still drop: of a source, a document of it, or one revision of that."""

    id: str
    tenant: str
    source_id: str
    document_id: str = ""
    revision: str = ""


class Documents(Protocol):
    """Keeps documents through their ingest. A crash at any point leaves either the old or the new revision."""

    async def admit(self, upload: Upload, document_id: str) -> Admission:
        """Queue the upload under its path, or report that nothing changed. A later upload of a path wins."""

    async def interrupted(self) -> list[tuple[Document, str]]:
        """Return documents that were queued or under way, each with the name of its staged file."""

    async def advance(self, document_id: str, staged: str, state: DocumentState) -> bool:
        """Record a step; False when the document is gone or a later upload took over."""

    async def fail(self, document_id: str, staged: str, reason: str, message: str) -> None:
        """Record why this upload was not ingested; the revision that was searchable stays so."""

    async def write(self, batch: Sequence[Passage]) -> bool:
        """Store passages of a revision that is not searched yet; writing them again changes nothing.

        False when their document is gone.
        """

    async def publish(self, document: Document, staged: str, terms: Mapping[str, int], *, embed: bool) -> bool:
        """Make `document.revision` the searched one in one transaction, and leave a Purge for the one
        before.

        `terms` counts the passages that hold each term, the empty term all of them. False when the document is gone
        or a later upload took over.
        """

    async def abandon(self, document: Document) -> None:
        """Forget `document.revision` that was written but not published, unless it is searched or queued again."""

    async def page(
        self,
        among: Sequence[Source],
        *,
        after: tuple[str, str] = ("", ""),
        limit: int = 100,
        path_glob: str = "",
        condition: Condition | None = None,
    ) -> list[Document]:
        """Return documents of these sources by path and id, those after the path and id `after`."""

    async def named(self, among: Sequence[Source], name: str) -> list[Document]:
        """Return the documents of these sources that have this id, path or title, not more than a few."""

    async def get(self, source: Source, document_id: str) -> Document:
        """Return one document, or raise DocumentNotFound."""

    async def at(self, source_id: str, path: str) -> Document | None:
        """Return the document at this path of a source, or None."""

    async def remove(self, document: Document) -> None:
        """Forget the document and its passages. Leaves one Purge."""

    async def matching(self, scope: Scope, condition: Condition) -> tuple[str, ...]:
        """Return ids of the documents in scope that satisfy the condition."""

    async def purges(self) -> list[Purge]:
        """Return what the index must still drop, oldest first."""

    async def purged(self, purge_id: str) -> None:
        """Record that the index has dropped it."""


class Passages(Protocol):
    """Reads passages of the searched revisions."""

    async def locate(self, scope: Scope, passage_ids: Sequence[str]) -> Mapping[str, Located]:
        """Return those of the passages that exist, are searched and lie in scope."""

    async def around(self, passage: Passage) -> tuple[str, str]:
        """Return the texts of the passages right before and after it, empty where there is none."""

    async def of_document(self, document: Document, *, start: int, limit: int) -> list[Passage]:
        """Return passages of the searched revision from ordinal `start`."""

    async def ordinal_at(self, document: Document, offset: int) -> int:
        """Return the ordinal of the passage that holds this character of the clean text, or begins next before it."""

    async def page_start(self, document: Document, page: int) -> int:
        """Return where this page begins, or the nearest page before it at which a child begins; 0 without pages."""

    async def characters(self, document: Document) -> int:
        """Return how many characters the clean text of the searched revision has."""

    async def summary(self, document: Document) -> str:
        """Return the summary of the searched revision, empty when there is none."""

    async def term_counts(self, scope: Scope, terms: Sequence[str]) -> TermCounts:
        """Return how many passages of the sources in scope hold each term."""


class ChunkIndex(Protocol):
    """Finds chunks by words and by vectors. Writes are idempotent by chunk id and are searchable when they return."""

    async def add(self, chunks: Sequence[IndexedChunk]) -> None: ...

    async def add_vectors(self, space: str, vectors: Sequence[ChunkVector]) -> None:
        """Write vectors of one embedding space; spaces never mix."""

    async def lexical(self, terms: Sequence[str], scope: Scope, limit: int) -> list[Match]:
        """Return chunks that hold any of the terms, best BM25 first."""

    async def nearest(self, space: str, vector: Sequence[float], scope: Scope, limit: int) -> list[Match]:
        """Return chunks by cosine similarity, nearest first."""

    async def vectors(self, space: str, scope: Scope, chunk_ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
        """Return the vector of each of these chunks that has one, at any length."""

    async def delete(self, purge: Purge) -> None:
        """Drop every chunk and vector that the purge names, in all spaces."""

    async def count(self, tenant: str, source_id: str) -> tuple[int, int]:
        """Return how many chunks and how many vectors a source has."""

    async def maintain(self) -> None:
        """Fold recent writes into the indexes; safe beside reads and writes."""

    async def close(self) -> None: ...


class EmbedPurpose(StrEnum):
    """What a text is embedded as."""

    QUERY = "query"
    PASSAGE = "passage"


class Embedder(Protocol):
    """Turns texts into unit vectors. `space` names the embedding space: model, variant, dimensions."""

    @property
    def space(self) -> str: ...

    async def embed(self, texts: Sequence[str], purpose: EmbedPurpose) -> list[list[float]]:
        """Return one vector for each text, or raise IndexUnavailable."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedJob:
    """A document revision whose passages from ordinal `done` on still need vectors."""

    document: Document
    done: int
    attempts: int


class EmbedQueue(Protocol):
    """The durable queue of vectors still to make; one worker holds a job at a time."""

    async def recover(self) -> None:
        """Free what a process before us held, if only one process can use these tables at a time."""

    async def claim(self, space: str) -> EmbedJob | None:
        """Take the next job, or None. A job that nobody reports on is given out again after the lease."""

    async def advance(self, job: EmbedJob, done: int) -> bool:
        """Record passages done and extend the lease; False when the revision was replaced or deleted."""

    async def finish(self, job: EmbedJob) -> None:
        """Record that every passage has its vector: the document is DONE."""

    async def postpone(self, job: EmbedJob, seconds: float) -> None:
        """Give the job back after a failure, not to be taken for `seconds`."""

    async def enqueue_stale(self, space: str) -> int:
        """Queue every searched document whose vectors are of another space; return how many."""

    async def lagging(self, source_ids: Sequence[str]) -> list[str]:
        """Return which of the sources still wait for vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A question that stands by itself, and its translation where one was made."""

    text: str
    translation: str = ""


class Rewriter(Protocol):
    """Makes a question stand by itself. Never fails: what cannot be rewritten stays as asked."""

    async def rewrite(self, question: str, history: Sequence[str]) -> Rewritten:
        """Return the question with what earlier turns (newest last) add to it."""


class Reranker(Protocol):
    """Orders hits anew by reading them; none is shipped."""

    async def rerank(self, question: str, hits: Sequence[Scored]) -> list[Scored]: ...


class Staging(Protocol):
    """Holds uploaded bytes on local disk until they are ingested."""

    async def receive(self, chunks: AsyncIterator[bytes], limit: int) -> tuple[str, int, str]:
        """Store a file durably; return its name, size and SHA-256, or raise UnreadableFile beyond `limit` bytes."""

    def path(self, staged: str) -> Path: ...

    async def discard(self, staged: str) -> None: ...

    async def names(self) -> Iterable[str]:
        """Return what is staged."""


class Parser(Protocol):
    """Turns a file into clean text, for whoever reads it at once."""

    async def text(self, path: Path, name: str, most: int) -> PlainText:
        """Return the first `most` characters of the file called `name`, or raise UnreadableFile."""


class Cutter(Protocol):
    """Turns a file into what is stored of it."""

    def open(self, path: Path, name: str) -> AbstractAsyncContextManager[CutDocument]:
        """Parse the file that stands at the path `name` of its source, or raise UnreadableFile.

        Its parcels come as they are asked for, while the block lasts: however large the file is, few wait to be taken.
        """


class WebSearch(Protocol):
    """A web search provider."""

    @property
    def provider(self) -> str: ...

    async def search(self, query: str, limit: int) -> list[Hit]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A fetched page as clean text."""

    url: str
    title: str
    text: str


class PageFetcher(Protocol):
    """Fetches public pages."""

    async def fetch(self, url: str) -> Page:
        """Return the page, raise UrlForbidden for a private address and PageUnavailable when it does not answer."""

    async def close(self) -> None: ...
