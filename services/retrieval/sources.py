"""Keeping sources and documents: create, list, delete, and reading one passage with its surroundings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from services.chassis.clock import Clock, Ids
from services.chassis.identity import Principal
from services.chassis.paging import decode_token, encode_token
from services.retrieval.domain.errors import NotYourSource, PassageNotFound
from services.retrieval.domain.library import Source, SourceCounts, Topic
from services.retrieval.domain.search import Hit, HitKind, Provenance, Scope, place
from services.retrieval.ports import Documents, Passages, Sources
from services.retrieval.purge import Purger
from services.retrieval.summary_ports import SummaryQueue

PAGE = 100
SURROUNDINGS = 1000
# Lets its holder change sources of others.
ADMIN_SCOPE = "sources:admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePage:
    """One page of sources with what is in each, and the token of the next page."""

    sources: Sequence[Source]
    counts: Mapping[str, SourceCounts]
    next_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrounded:
    """A whole passage, and the text right before and after it."""

    hit: Hit
    before: str
    after: str


class Library:
    """What may be done to sources and documents, and by whom: reading is the tenant's, changing the owner's."""

    def __init__(
        self,
        sources: Sources,
        documents: Documents,
        passages: Passages,
        purger: Purger,
        clock: Clock,
        ids: Ids,
        summaries: SummaryQueue | None = None,
    ) -> None:
        self._summaries = summaries
        self._sources = sources
        self._documents = documents
        self._passages = passages
        self._purger = purger
        self._clock = clock
        self._ids = ids

    async def create(
        self,
        principal: Principal,
        *,
        name: str,
        description: str,
        shared: bool,
        topics: tuple[Topic, ...] = (),
    ) -> Source:
        """Make a source that `principal` owns, or raise SourceExists."""
        source = Source(
            id=self._ids.new(),
            tenant=principal.tenant,
            name=name,
            owner=principal.user,
            description=description,
            shared=shared,
            created_at=self._clock.now(),
            topics=topics,
        )
        await self._sources.create(source)
        return source

    async def list_sources(self, principal: Principal, *, size: int, token: str) -> SourcePage:
        """Return a page of the sources that `principal` may read, by name."""
        size = size or PAGE
        after = str(decode_token("sources", token)[0]) if token else ""
        found = await self._sources.readable(principal, after=after, limit=size + 1)
        shown = found[:size]
        return SourcePage(
            sources=shown,
            counts=await self._counts([source.id for source in shown]),
            next_token=encode_token("sources", shown[-1].name) if len(found) > size else "",
        )

    async def _counts(self, source_ids: Sequence[str]) -> Mapping[str, SourceCounts]:
        counts = await self._sources.counts(source_ids)
        pending = await self._summaries.pending(source_ids) if self._summaries else {}
        return {name: replace(count, summaries_pending=pending.get(name, 0)) for name, count in counts.items()}

    async def delete_source(self, principal: Principal, id_or_name: str) -> int:
        """Delete a source and all it holds, in every store; return how many documents that were."""
        source = await self.changeable(principal, id_or_name)
        count = await self._sources.remove(source)
        await self._purger.run()
        return count

    async def delete_document(self, principal: Principal, id_or_name: str, document_id: str) -> None:
        """Delete a document with its passages, chunks and vectors."""
        source = await self.changeable(principal, id_or_name)
        await self._documents.remove(await self._documents.get(source, document_id))
        await self._purger.run()

    async def passage(self, principal: Principal, passage_id: str, source: str) -> Surrounded:
        """Return a passage that the principal may read, or raise PassageNotFound."""
        if source:
            sources = [await self._sources.find(principal, source)]
        else:
            sources = await self._sources.readable(principal)
        scope = Scope(tenant=principal.tenant, sources=tuple(one.id for one in sources))
        located = (await self._passages.locate(scope, [passage_id])).get(passage_id)
        if located is None:
            raise PassageNotFound(passage_id)
        passage = located.passage
        before, after = await self._passages.around(passage)
        hit = Hit(
            passage_id=passage.id,
            source_id=passage.source_id,
            document_id=passage.document_id,
            title=located.title,
            where=place(passage.spans[0]),
            text=passage.text,
            url=located.url,
            kind=HitKind.SUMMARY if passage.is_summary else HitKind.PASSAGE,
            provenance=Provenance(start=passage.start, end=passage.end),
        )
        return Surrounded(hit=hit, before=before[-SURROUNDINGS:], after=after[:SURROUNDINGS])

    async def changeable(self, principal: Principal, id_or_name: str) -> Source:
        """Return a source that the principal may change, or raise SourceNotFound or NotYourSource."""
        source = await self._sources.find(principal, id_or_name)
        if source.owner != principal.user and not principal.scopes & {ADMIN_SCOPE, "*"}:
            raise NotYourSource(source.name, source.owner)
        return source
