"""The sources and the web as tools see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.chassis.identity import Principal
from services.orchestrator.evidence import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A document in a listing. `state` is queued, parsing, indexing, embedding, done or failed, with its reason."""

    document_id: str
    source: str
    path: str
    title: str
    media_type: str
    size: int
    passages: int
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One page of documents by path; an empty token ends it."""

    documents: Sequence[Listed]
    next_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentText:
    """Part of a document's clean text, cut into its passages. `next_offset` is 0 at the end; `characters` is all."""

    document_id: str
    source_id: str
    source: str
    path: str
    title: str
    url: str
    passages: tuple[Finding, ...]
    start: int
    end: int
    next_offset: int
    characters: int
    summary: str = ""

    @property
    def text(self) -> str:
        """The passages as one text."""
        return "\n\n".join(passage.text for passage in self.passages)


class LibraryRefused(Exception):
    """The sources or the web did not give what was asked for; the message is for the model."""


class Library(Protocol):
    """Lists and reads what a principal may read. Empty `sources` are all of them."""

    async def list(self, principal: Principal, sources: tuple[str, ...], *, glob: str, token: str) -> Listing:
        """Return a page of documents. Raises LibraryRefused."""
        ...

    async def read(
        self,
        principal: Principal,
        sources: tuple[str, ...],
        document: str,
        *,
        offset: int = 0,
        page: int = 0,
        limit: int = 0,
    ) -> DocumentText:
        """Return at most `limit` characters of a document, found by id, path or title. Raises LibraryRefused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAccess:
    """What of the web is configured, and why not when the service does not even say."""

    searches: bool = False
    fetches: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage:
    """A page as text, where it was in the end, and whether its text was cut."""

    finding: Finding
    url: str
    truncated: bool


class Web(Protocol):
    """Searches the web and fetches pages."""

    async def access(self) -> WebAccess:
        """Return what there is, from an answer some seconds old at most."""
        ...

    async def search(self, principal: Principal, query: str, top_k: int) -> tuple[Finding, ...]:
        """Return results of kind web. Raises LibraryRefused."""
        ...

    async def fetch(self, principal: Principal, url: str, limit: int) -> WebPage:
        """Return a public page. Raises LibraryRefused."""
        ...
