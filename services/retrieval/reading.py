"""Listing the documents of sources, and reading one from an offset on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.chassis.errors import InvalidRequest
from services.chassis.identity import Principal
from services.chassis.paging import decode_token, encode_token
from services.retrieval.domain import filters
from services.retrieval.domain.errors import DocumentNotFound
from services.retrieval.domain.library import Document, Passage, Source, Span
from services.retrieval.domain.search import place
from services.retrieval.ports import Documents, Passages, Sources

PAGE = 100
CHARACTERS = 20_000
# What separates two passages in a document's clean text: a blank line.
GAP = 2
# Passages fetched in one go while reading.
BATCH = 16


_CALLED: tuple[Callable[[Document], str], ...] = (
    lambda document: document.id,
    lambda document: document.path,
    lambda document: document.title,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentPage:
    """One page of documents, the names of their sources by id, and the token of the next page."""

    documents: Sequence[Document]
    names: Mapping[str, str]
    next_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Text of one passage, characters [start, end) of the document's clean text."""

    passage_id: str
    where: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Parts of a document in order. `next_offset` is 0 at its end; `characters` counts the whole clean text."""

    document: Document
    source_name: str
    parts: tuple[Part, ...]
    next_offset: int
    characters: int
    summary: str = ""


class Reader:
    """Lists and reads what a principal may read."""

    def __init__(self, sources: Sources, documents: Documents, passages: Passages) -> None:
        self._sources = sources
        self._documents = documents
        self._passages = passages

    async def list_documents(
        self, principal: Principal, sources: Sequence[str], *, size: int, token: str, path_glob: str, where: str
    ) -> DocumentPage:
        """Return a page of the documents of these sources (ids or names, empty for all readable), by path."""
        condition = filters.parse(where)
        among = await self._among(principal, sources)
        names = {source.id: source.name for source in among}
        list_name = f"documents:{','.join(sorted(names))}:{path_glob}:{where}"
        path, document_id = map(str, decode_token(list_name, token)) if token else ("", "")
        size = size or PAGE
        found = await self._documents.page(
            among, after=(path, document_id), limit=size + 1, path_glob=path_glob, condition=condition
        )
        shown = found[:size]
        more = encode_token(list_name, shown[-1].path, shown[-1].id) if len(found) > size else ""
        return DocumentPage(documents=shown, names=names, next_token=more)

    async def read(
        self, principal: Principal, sources: Sequence[str], name: str, *, offset: int, limit: int, page: int
    ) -> Reading:
        """Return at most `limit` characters of a document from `offset`, or from a page, on.

        Raises DocumentNotFound, and InvalidRequest when several documents go by that path or title.
        """
        among = await self._among(principal, sources)
        document = self._one(await self._documents.named(among, name), name, among)
        if page:
            offset = await self._passages.page_start(document, page)
        parts = await self._parts(document, offset, limit or CHARACTERS)
        characters = await self._passages.characters(document)
        end = parts[-1].end if parts else characters
        return Reading(
            document=document,
            source_name=next(source.name for source in among if source.id == document.source_id),
            parts=tuple(parts),
            next_offset=end if end < characters else 0,
            characters=characters,
            summary=await self._passages.summary(document),
        )

    async def _among(self, principal: Principal, names: Sequence[str]) -> list[Source]:
        if not names:
            return await self._sources.readable(principal)
        found = [await self._sources.find(principal, name) for name in names]
        return list({source.id: source for source in found}.values())

    @staticmethod
    def _one(found: Sequence[Document], name: str, among: Sequence[Source]) -> Document:
        called = ([one for one in found if name == said(one)] for said in _CALLED)
        for fitting in called:
            if len(fitting) == 1:
                return fitting[0]
            if fitting:
                names = {source.id: source.name for source in among}
                places = ", ".join(f"'{one.path}' of '{names[one.source_id]}' (id {one.id})" for one in fitting[:5])
                raise InvalidRequest(f"several documents are called '{name}': {places}; use one's id")
        raise DocumentNotFound(name)

    async def _parts(self, document: Document, offset: int, limit: int) -> list[Part]:
        parts: list[Part] = []
        ordinal = await self._passages.ordinal_at(document, offset)
        while limit > 0:
            passages = await self._passages.of_document(document, start=ordinal, limit=BATCH)
            for passage in passages:
                part = _part(passage, offset, limit)
                if part is None:
                    continue
                parts.append(part)
                limit -= len(part.text) + GAP
                if limit <= 0 or part.end < passage.end:
                    return parts
            if len(passages) < BATCH:
                break
            ordinal += BATCH
        return parts


def _part(passage: Passage, offset: int, limit: int) -> Part | None:
    """Return what `limit` leaves of a passage from `offset` on, None when that is nothing."""
    skipped = max(offset - passage.start, 0)
    text = passage.text[skipped : skipped + limit]
    if not text:
        return None
    start = passage.start + skipped
    return Part(
        passage_id=passage.id,
        where=place(_span_at(passage, skipped)),
        text=text,
        start=start,
        end=start + len(text),
    )


def _span_at(passage: Passage, at: int) -> Span:
    return next((span for span in passage.spans if span.end > at), passage.spans[-1])
