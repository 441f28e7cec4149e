"""Sites and summaries on SQLite and PostgreSQL: whose turn it is, who holds it, and what a sync has seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from services.chassis.database import migrate, open_engine
from services.chassis.identity import Principal
from services.retrieval.adapters.sql.documents import SqlDocuments
from services.retrieval.adapters.sql.passages import SqlPassages
from services.retrieval.adapters.sql.sites import LEASE, SqlSites
from services.retrieval.adapters.sql.sources import SqlSources
from services.retrieval.adapters.sql.summaries import MOST_ATTEMPTS, SqlSummaryQueue
from services.retrieval.domain.errors import SiteNotFound, SourceNotFound
from services.retrieval.domain.library import Document, Passage, Source, Span, Upload, passage_id, revision_of
from services.retrieval.domain.sites import PageOutcome, Site, SiteCounts, SitePage, SiteState
from tests.support.clock import START, FakeClock, SequentialIds

ANN = Principal(tenant="t1", user="ann")
START_URL = "https://w.example/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    clock: FakeClock
    sources: SqlSources
    documents: SqlDocuments
    passages: SqlPassages
    sites: SqlSites
    summaries: SqlSummaryQueue

    async def source(self) -> Source:
        return await self.sources.find(ANN, "s1")

    async def settle(self, site: Site, outcome: PageOutcome = PageOutcome.ADDED, *links: str) -> SitePage:
        """Deal with the page whose turn it is."""
        page = await self.sites.next_page(site)
        assert page is not None
        done = replace(page, outcome=outcome, path=page.url if outcome is PageOutcome.ADDED else "", etag="e")
        assert await self.sites.settle(site, done, [(link, page.depth + 1) for link in links], 10)
        return done

    async def publish(self, content: str = "one", *, parts: int = 2) -> Document:
        upload = Upload(
            tenant="t1", source_id="s1", path="a.md", staged=f"staged-{content}", size=1, content_hash=content
        )
        document = (await self.documents.admit(upload, "d1")).document
        document = replace(document, revision=revision_of("d1", content), passages=parts)
        await self.documents.write([passage(document, ordinal, content) for ordinal in range(parts)])
        assert await self.documents.publish(document, upload.staged, {"": parts}, embed=False)
        return document


def passage(document: Document, ordinal: int, text: str) -> Passage:
    return Passage(
        id=passage_id(document.revision, ordinal),
        tenant="t1",
        source_id="s1",
        document_id=document.id,
        revision=document.revision,
        ordinal=ordinal,
        text=text,
        start=0,
        spans=(Span(start=0, end=len(text)),),
    )


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    engine = open_engine(database_url)
    await migrate(engine, "services.retrieval:migrations")
    clock, ids = FakeClock(), SequentialIds()
    opened = Desk(
        clock=clock,
        sources=SqlSources(engine, clock, ids),
        documents=SqlDocuments(engine, clock, ids),
        passages=SqlPassages(engine),
        sites=SqlSites(engine, clock),
        summaries=SqlSummaryQueue(engine, clock, 2),
    )
    await opened.sources.create(
        Source(id="s1", tenant="t1", name="web", owner="ann", description="", shared=True, created_at=START)
    )
    yield opened
    await engine.dispose()


def wanted(**fields: object) -> Site:
    site = Site(id="w1", tenant="t1", source_id="s1", url=START_URL, max_pages=3, max_depth=2)
    return replace(site, **fields)  # type: ignore[arg-type]


# --- Sites -----------------------------------------------------------------------------------------------------------
async def test_a_site_is_held_by_one_worker_until_its_lease_ends(desk: Desk) -> None:
    site = await desk.sites.request(wanted())

    assert await desk.sites.claim() == site
    assert await desk.sites.claim() is None
    assert await desk.sites.request(wanted(id="w2", max_depth=1)) == replace(site, max_depth=1)
    desk.clock.advance(LEASE.total_seconds() + 1)
    assert await desk.sites.claim() == replace(site, max_depth=1)
    await desk.sites.release(site)
    assert await desk.sites.claim() is not None


async def test_pages_take_their_turn_in_the_order_they_were_found_each_once(desk: Desk) -> None:
    site = await desk.sites.request(wanted())

    await desk.settle(site, PageOutcome.ADDED, "https://w.example/b", "https://w.example/a", START_URL)
    await desk.settle(site, PageOutcome.ADDED, "https://w.example/a", "https://w.example/c")
    await desk.settle(site, PageOutcome.FAILED)

    assert await desk.sites.next_page(site) is None
    seen = await desk.sites.pages(site)
    assert [(page.url, page.depth, page.number) for page in seen] == [
        (START_URL, 0, 1),
        ("https://w.example/b", 1, 2),
        ("https://w.example/a", 1, 3),
    ]
    assert await desk.sites.pages(site, after=2) == seen[2:]
    assert await desk.sites.cut(site)  # the fourth page was one too many
    assert await desk.sites.counts([site.id]) == {site.id: SiteCounts(documents=2, failed=1, waiting=0)}


async def test_the_next_sync_keeps_what_is_known_and_tells_what_it_did_not_come_across(desk: Desk) -> None:
    site = await desk.sites.request(wanted(every=timedelta(hours=6)))
    await desk.settle(site, PageOutcome.ADDED, "https://w.example/a")
    await desk.settle(site)
    await desk.sites.finish(site, SiteState.DONE, "")

    assert await desk.sites.claim() is None
    desk.clock.advance(6 * 3600 + 1)
    again = await desk.sites.claim()
    assert again is not None
    assert (again.sync, again.state) == (2, SiteState.SYNCING)
    page = await desk.sites.next_page(again)
    assert page is not None
    assert (page.url, page.etag, page.path) == (START_URL, "e", START_URL)
    await desk.settle(again)
    (lost,) = await desk.sites.not_named(again)
    assert lost.url == "https://w.example/a"
    assert not await desk.sites.settle(site, page, (), 0)  # a worker of the sync before
    await desk.sites.forget(lost)
    assert await desk.sites.not_named(again) == []


async def test_a_site_goes_with_its_source_and_by_itself(desk: Desk) -> None:
    site = await desk.sites.request(wanted())
    other = await desk.sites.request(wanted(id="w2", url="https://w.example/z"))
    await desk.settle(site)
    source = await desk.source()

    assert await desk.sites.holders("s1", START_URL) == [(site.id, START_URL)]
    assert await desk.sites.paths(site) == [START_URL]
    assert await desk.sites.of_source(source, after=START_URL, limit=9) == [other]
    await desk.sites.remove(site)
    with pytest.raises(SiteNotFound):
        await desk.sites.get(source, site.id)
    await desk.sources.remove(source)
    assert await desk.sites.claim() is None
    with pytest.raises(SourceNotFound):
        await desk.sites.request(wanted())


# --- Summaries -------------------------------------------------------------------------------------------------------
async def test_a_searched_document_wants_a_summary_once_for_each_revision(desk: Desk) -> None:
    document = await desk.publish("one")

    assert await desk.summaries.pending(["s1"]) == {"s1": 1}
    job = await desk.summaries.claim("")
    assert job is not None
    assert (job.document.revision, job.attempts) == (document.revision, 1)
    assert await desk.summaries.claim("") is None
    assert await desk.summaries.finish(job, "")
    assert await desk.summaries.pending(["s1"]) == {}
    assert await desk.summaries.claim("") is None
    await desk.publish("two")
    fresh = await desk.summaries.claim("")
    assert fresh is not None
    assert not await desk.summaries.finish(job, "")
    assert await desk.summaries.finish(fresh, "")


async def test_a_summary_is_read_and_stands_around_nothing(desk: Desk) -> None:
    document = await desk.publish("one")
    await desk.documents.write([passage(document, -1, "in short")])

    assert await desk.passages.summary(document) == "in short"
    (first, second) = await desk.passages.of_document(document, start=0, limit=9)
    assert await desk.passages.around(first) == ("", "one")
    assert second.ordinal == 1
    assert await desk.passages.characters(document) == 3


async def test_a_new_embedder_and_short_documents(desk: Desk) -> None:
    await desk.publish("short", parts=1)
    assert await desk.summaries.claim("old") is None
    await desk.publish("long", parts=2)
    job = await desk.summaries.claim("old")
    assert job is not None
    await desk.summaries.finish(job, "old")

    assert await desk.summaries.claim("old") is None
    assert await desk.summaries.claim("new") is not None


async def test_a_document_that_always_fails_is_given_up_until_it_changes(desk: Desk) -> None:
    await desk.publish("one")
    for attempt in range(1, MOST_ATTEMPTS + 1):
        job = await desk.summaries.claim("")
        assert job is not None
        assert job.attempts == attempt
        await desk.summaries.postpone(job, 5)
        assert await desk.summaries.claim("") is None
        desk.clock.advance(6)

    assert await desk.summaries.claim("") is None
    assert await desk.summaries.pending(["s1"]) == {}
    await desk.publish("two")
    fresh = await desk.summaries.claim("")
    assert fresh is not None
    assert fresh.attempts == 1
