"""One page of a site: read as the site allows, and what becomes of it and of its document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

from services.chassis.clock import Ids
from services.retrieval.domain.errors import (
    PageElsewhere,
    PageGone,
    PageUnavailable,
    UnreadableFile,
    UrlForbidden,
)
from services.retrieval.domain.library import DocumentState, Progress, Upload
from services.retrieval.domain.sites import PageLinks, PageOutcome, Site, SitePage, followed, host_of
from services.retrieval.ingest import Ingest
from services.retrieval.ports import Documents, Staging
from services.retrieval.purge import Purger
from services.retrieval.site_ports import LinkParser, PageAnswer, SiteReader, Sites

# A page that says "later" is asked again this often, and waited for no longer than this.
TRIES = 3
LONGEST_WAIT = 60.0
# Files that hold nothing to read are no failure of a site.
_NOTHING_TO_READ = frozenset({"UNSUPPORTED_DOCUMENT", "EMPTY", "NO_TEXT"})


class SiteFailed(Exception):
    """The page that a site begins with cannot be read: nothing can be said of the others."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A page with what became of it, where it leads, and what it cost."""

    page: SitePage
    links: tuple[tuple[str, int], ...] = ()
    read_bytes: int = 0
    host: str = ""


class PageIntake:
    """Takes pages in, each at most `page_bytes` large."""

    def __init__(
        self,
        sites: Sites,
        documents: Documents,
        staging: Staging,
        ingest: Ingest,
        purger: Purger,
        reader: SiteReader,
        parser: LinkParser,
        ids: Ids,
        *,
        page_bytes: int,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._sites = sites
        self._documents = documents
        self._staging = staging
        self._ingest = ingest
        self._purger = purger
        self._reader = reader
        self._parser = parser
        self._ids = ids
        self._page_bytes = page_bytes
        self._pause = pause

    async def take(self, site: Site, page: SitePage) -> Settled:
        """Return what became of the page, or raise SiteFailed when it is the one that leads to all others."""
        try:
            answer = await self._read(site, page)
        except (PageGone, PageElsewhere, UrlForbidden) as refusal:
            # Without the page that leads to the others all of them would seem to have vanished.
            if page.url == site.url and not (page.path and site.max_depth == 0):
                raise SiteFailed(refusal.message) from refusal
            outcome = PageOutcome.GONE if isinstance(refusal, PageGone) else PageOutcome.SKIPPED
            return Settled(await self.without(site, page, outcome, refusal.message))
        except PageUnavailable as failure:
            if page.url == site.url:
                raise SiteFailed(failure.message) from failure
            return self.failed(site, page, failure.message)
        host = site.host or host_of(answer.url)
        if answer.unchanged:
            return Settled(
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

    async def _take(self, site: Site, page: SitePage, answer: PageAnswer, host: str) -> Settled:
        staged, size, digest = await self._staging.receive(_once(answer.body), self._page_bytes)
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
            return Settled(await self.without(site, page, PageOutcome.FOLLOWED, ""), leads)
        others = [url for who, url in await self._sites.holders(site.source_id, answer.url) if who == site.id]
        if any(url != page.url for url in others) and answer.url != page.url:
            await self._staging.discard(staged)
            told = f"it leads to '{answer.url}', which is here already"
            leads = ((answer.url, page.depth), *leads)
            return Settled(await self.without(site, page, PageOutcome.SKIPPED, told), leads)
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
        return Settled(await self._ingested(site, page, upload), leads)

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
                return await self.without(site, gone, PageOutcome.SKIPPED, progress.message)
            return replace(page, outcome=PageOutcome.FAILED, message=progress.message, etag="", last_modified="")
        if page.path and page.path != upload.path:
            await self.without(site, page, PageOutcome.SKIPPED, "")
        known = page.path == upload.path
        outcome = PageOutcome.CHANGED if known else PageOutcome.ADDED
        return replace(
            page,
            outcome=PageOutcome.UNCHANGED if progress.unchanged else outcome,
            path=upload.path,
            passages=progress.passages,
        )

    def failed(self, site: Site, page: SitePage, message: str) -> Settled:
        """Return a page that could not be read this time: what it led to before must not seem to have vanished."""
        # Without a document it was a sitemap, most likely, whose pages stand at its own depth.
        depth = page.depth if page.path else page.depth - 1
        leads = self._onward(site, replace(page, depth=depth), page.links)
        return Settled(replace(page, outcome=PageOutcome.FAILED, message=message), leads)

    def _onward(self, site: Site, page: SitePage, links: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
        if page.depth + 1 > site.max_depth:
            return ()
        return tuple((url, page.depth + 1) for url in links)

    async def without(self, site: Site, page: SitePage, outcome: PageOutcome, message: str) -> SitePage:
        """Delete the document that a page became, unless another page of the source became the same."""
        await forget_document(self._sites, self._documents, self._purger, site, page)
        return replace(page, outcome=outcome, message=message, path="", passages=0)


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
