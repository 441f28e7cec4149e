"""Following sites: one page after another, politely, durably; whatever stops it is taken up again where it stood.

Each page is settled in one transaction with the addresses it leads to, after its document is searchable. So a crash
costs at most one page, which is read again and found unchanged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

from services.chassis.clock import Clock, Ids
from services.chassis.errors import ServiceError
from services.retrieval.domain.errors import (
    PageElsewhere,
    PageGone,
    PageUnavailable,
    UnreadableFile,
    UrlForbidden,
)
from services.retrieval.domain.library import DocumentState, Progress, Upload
from services.retrieval.domain.sites import PageLinks, PageOutcome, Site, SitePage, SiteState, followed, host_of
from services.retrieval.ingest import Ingest
from services.retrieval.ports import Documents, Staging
from services.retrieval.purge import Purger
from services.retrieval.site_ports import LinkParser, PageAnswer, SiteReader, Sites

log = logging.getLogger(__name__)

IDLE_SECONDS = 5.0
# A page that says "later" is asked again this often, and waited for no longer than this.
TRIES = 3
LONGEST_WAIT = 60.0
# Files that hold nothing to read are no failure of a site.
_NOTHING_TO_READ = frozenset({"UNSUPPORTED_DOCUMENT", "EMPTY", "NO_TEXT"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Politeness:
    """Bounds of a sync: seconds between two pages (a site may ask for more), bytes of a page and of all together."""

    delay: float = 1.0
    page_bytes: int = 20 * 2**20
    site_bytes: int = 2**30


class _SiteFailed(Exception):
    """The page that a site begins with cannot be read: nothing can be said of the others."""


@dataclass(frozen=True, slots=True)
class _Settled:
    """A page with what became of it, where it leads, and what it cost."""

    page: SitePage
    links: tuple[tuple[str, int], ...] = ()
    read_bytes: int = 0
    host: str = ""


class Crawler:
    """Works off sites whose sync is due, one page of a site at a time."""

    def __init__(
        self,
        sites: Sites,
        documents: Documents,
        staging: Staging,
        ingest: Ingest,
        purger: Purger,
        reader: SiteReader,
        parser: LinkParser,
        politeness: Politeness,
        clock: Clock,
        ids: Ids,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._sites = sites
        self._documents = documents
        self._staging = staging
        self._ingest = ingest
        self._purger = purger
        self._reader = reader
        self._parser = parser
        self._politeness = politeness
        self._clock = clock
        self._ids = ids
        self._pause = pause
        self._wake = asyncio.Event()
        self._listening: set[asyncio.Event] = set()

    def wake(self) -> None:
        """Look for a site that is due now."""
        self._wake.set()

    async def changed(self, limit: float) -> None:
        """Return when a page was settled in this process, or after `limit` seconds."""
        event = asyncio.Event()
        self._listening.add(event)
        try:
            async with asyncio.timeout(limit):
                await event.wait()
        except TimeoutError:
            return
        finally:
            self._listening.discard(event)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._wake.clear()
            site = await self._sites.claim()
            if site is not None:
                await self._sync(site)
                continue
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                continue  # a sync may be due by now, or another replica's lease has passed

    async def _sync(self, site: Site) -> None:
        last = self._clock.monotonic() - LONGEST_WAIT
        try:
            while page := await self._sites.next_page(site):
                await self._wait_turn(page, last)
                last = self._clock.monotonic()
                settled = await self._safely(site, page)
                site = replace(site, host=settled.host or site.host, read_bytes=site.read_bytes + settled.read_bytes)
                if not await self._sites.settle(site, settled.page, settled.links, settled.read_bytes):
                    return  # deleted meanwhile, or another worker's
                self._tell()
                if site.read_bytes > self._politeness.site_bytes:
                    await self._end(site, f"stopped after {site.read_bytes // 2**20} MiB, which is the most of a site")
                    return
            await self._close(site)
        except _SiteFailed as failure:
            await self._end(site, str(failure), state=SiteState.FAILED)
        except asyncio.CancelledError:
            # An orderly stop: the next start, or another replica, need not wait for the lease.
            await asyncio.shield(self._sites.release(site))
            raise

    async def _wait_turn(self, page: SitePage, last: float) -> None:
        try:
            asked = await self._reader.delay(page.url)
        except ServiceError:
            asked = 0.0  # what is wrong with the address is told when it is read
        left = last + max(self._politeness.delay, asked) - self._clock.monotonic()
        if left > 0:
            await self._pause(left)

    async def _safely(self, site: Site, page: SitePage) -> _Settled:
        try:
            return await self._page(site, page)
        except (_SiteFailed, ServiceError):
            raise
        except Exception:
            # One page that breaks us must not keep the others of its site waiting for ever.
            log.exception("a page could not be taken in", extra={"event": "site.page_failed", "site": site.id})
            told = "the page could not be taken in for a reason of our own; it is tried again at the next sync"
            return _Settled(replace(page, outcome=PageOutcome.FAILED, message=told))

    async def _page(self, site: Site, page: SitePage) -> _Settled:
        try:
            answer = await self._read(site, page)
        except (PageGone, PageElsewhere, UrlForbidden) as refusal:
            # Without the page that leads to the others all of them would seem to have vanished.
            if page.url == site.url and not (page.path and site.max_depth == 0):
                raise _SiteFailed(refusal.message) from refusal
            outcome = PageOutcome.GONE if isinstance(refusal, PageGone) else PageOutcome.SKIPPED
            return _Settled(await self._without(site, page, outcome, refusal.message))
        except PageUnavailable as failure:
            if page.url == site.url:
                raise _SiteFailed(failure.message) from failure
            return _Settled(replace(page, outcome=PageOutcome.FAILED, message=failure.message))
        host = site.host or host_of(answer.url)
        if answer.unchanged:
            return _Settled(
                replace(page, outcome=PageOutcome.UNCHANGED), self._onward(site, page, page.links), host=host
            )
        return replace(await self._take(site, page, answer, host), read_bytes=len(answer.body), host=host)

    async def _read(self, site: Site, page: SitePage) -> PageAnswer:
        if not page.path or await self._documents.at(site.source_id, page.path) is None:
            # What we do not hold must come whole, unchanged or not.
            page = replace(page, etag="", last_modified="")
        for left in reversed(range(TRIES)):
            try:
                return await self._reader.read(page, site.host)
            except PageUnavailable as later:
                if later.retry_after is None or not left:
                    raise
                await self._pause(min(later.retry_after, LONGEST_WAIT))
        raise AssertionError("the last try returns or raises")

    async def _take(self, site: Site, page: SitePage, answer: PageAnswer, host: str) -> _Settled:
        staged, size, digest = await self._staging.receive(_once(answer.body), self._politeness.page_bytes)
        try:
            links = await self._parser.links(self._staging.path(staged), answer.url)
        except UnreadableFile:
            links = PageLinks()  # ingest says what is wrong with it
        onward = tuple(followed(links.found, answer.url, host))
        page = replace(page, etag=answer.etag, last_modified=answer.last_modified, links=onward, message="")
        # A sitemap leads to pages of its own depth: they are what it is about.
        depth = page.depth if links.sitemap else page.depth + 1
        leads = self._onward(site, replace(page, depth=depth - 1), onward)
        if not links.keep:
            await self._staging.discard(staged)
            return _Settled(await self._without(site, page, PageOutcome.FOLLOWED, ""), leads)
        others = [url for who, url in await self._sites.holders(site.source_id, answer.url) if who == site.id]
        if any(url != page.url for url in others) and answer.url != page.url:
            await self._staging.discard(staged)
            told = f"it leads to '{answer.url}', which is here already"
            leads = ((answer.url, page.depth), *leads)
            return _Settled(await self._without(site, page, PageOutcome.SKIPPED, told), leads)
        upload = Upload(
            tenant=site.tenant,
            source_id=site.source_id,
            path=answer.url,
            staged=staged,
            size=size,
            content_hash=digest,
            url=answer.url,
            metadata={"site": site.url},
        )
        return _Settled(await self._ingested(site, page, upload), leads)

    async def _ingested(self, site: Site, page: SitePage, upload: Upload) -> SitePage:
        ended: asyncio.Future[Progress] = asyncio.get_running_loop().create_future()

        def report(progress: Progress) -> None:
            if (progress.state.settled or progress.unchanged) and not ended.done():
                ended.set_result(progress)

        await self._ingest.submit(upload, self._ids.new(), report)
        progress = await ended
        if progress.state is DocumentState.FAILED and not progress.unchanged:
            if progress.reason in _NOTHING_TO_READ:
                gone = replace(page, path=upload.path)
                return await self._without(site, gone, PageOutcome.SKIPPED, progress.message)
            return replace(page, outcome=PageOutcome.FAILED, message=progress.message)
        if page.path and page.path != upload.path:
            await self._without(site, page, PageOutcome.SKIPPED, "")
        known = page.path == upload.path
        outcome = PageOutcome.CHANGED if known else PageOutcome.ADDED
        return replace(
            page,
            outcome=PageOutcome.UNCHANGED if progress.unchanged else outcome,
            path=upload.path,
            passages=progress.passages,
        )

    def _onward(self, site: Site, page: SitePage, links: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
        if page.depth + 1 > site.max_depth:
            return ()
        return tuple((url, page.depth + 1) for url in links)

    async def _without(self, site: Site, page: SitePage, outcome: PageOutcome, message: str) -> SitePage:
        """Delete the document that a page became, unless another page of the source became the same."""
        await forget_document(self._sites, self._documents, self._purger, site, page)
        return replace(page, outcome=outcome, message=message, path="", passages=0)

    async def _close(self, site: Site) -> None:
        """End a sync whose pages were all dealt with: what it did not come across has vanished, if it saw all."""
        if await self._sites.cut(site):
            await self._end(site, f"stopped at {site.max_pages} pages; allow more pages to read the others")
            return
        for page in await self._sites.not_named(site):
            if not page.path:
                await self._sites.forget(page)
                continue
            gone = await self._without(site, page, PageOutcome.GONE, "nothing leads to it any more")
            await self._sites.settle(site, gone, (), 0)
            self._tell()
        await self._end(site, "")

    async def _end(self, site: Site, message: str, *, state: SiteState = SiteState.DONE) -> None:
        await self._sites.finish(site, state, message)
        log.info(
            "site synced",
            extra={"event": "site.synced", "site": site.id, "state": state.value, "told": message},
        )
        self._tell()

    def _tell(self) -> None:
        for event in self._listening:
            event.set()


async def forget_document(sites: Sites, documents: Documents, purger: Purger, site: Site, page: SitePage) -> bool:
    """Delete the document that a page became; False when there is none, or another page holds it too."""
    if not page.path:
        return False
    others = await sites.holders(site.source_id, page.path)
    if any(other != (page.site_id, page.url) for other in others):
        return False
    document = await documents.at(site.source_id, page.path)
    if document is None:
        return False
    await documents.remove(document)
    await purger.run()
    return True


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
