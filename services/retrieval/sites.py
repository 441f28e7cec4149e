"""Sites of a source: following one, watching its sync, listing and giving up."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

from services.chassis.clock import Ids
from services.chassis.errors import InvalidRequest, NotConfigured
from services.chassis.identity import Principal
from services.chassis.paging import decode_token, encode_token
from services.retrieval.crawl import Crawler
from services.retrieval.domain.errors import UrlForbidden
from services.retrieval.domain.library import Source
from services.retrieval.domain.sites import PageOutcome, Site, SiteCounts, SitePage, SiteState, normal
from services.retrieval.page_intake import forget_document
from services.retrieval.ports import Documents, Sources
from services.retrieval.purge import Purger
from services.retrieval.site_ports import Sites
from services.retrieval.sources import Library

PAGE = 100
DEFAULT_PAGES = 200
# A watcher looks into the table this often when another replica leads the sync.
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteView:
    """A site with the counts of its pages."""

    site: Site
    counts: SiteCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteList:
    """One page of sites, and the token of the next page."""

    sites: Sequence[SiteView]
    next_token: str


class Following:
    """What may be done to sites: reading is for whoever reads the source, changing for whoever changes it."""

    def __init__(
        self,
        library: Library,
        sources: Sources,
        sites: Sites,
        documents: Documents,
        purger: Purger,
        crawler: Crawler | None,
        ids: Ids,
        *,
        most_pages: int,
    ) -> None:
        self._library = library
        self._sources = sources
        self._sites = sites
        self._documents = documents
        self._purger = purger
        self._crawler = crawler
        self._ids = ids
        self._most_pages = most_pages

    async def sync(
        self,
        principal: Principal,
        source: str,
        url: str,
        *,
        max_pages: int,
        max_depth: int,
        every: timedelta | None,
    ) -> AsyncGenerator[SiteView | SitePage]:
        """Begin or join a sync; yield the site, each page as it is settled, and the site when the sync has ended."""
        crawler = self._running()
        owned = await self._library.changeable(principal, source)
        if max_pages > self._most_pages:
            raise InvalidRequest(f"a site may have {self._most_pages} pages, not {max_pages}; ask for fewer")
        address = normal(url)
        if not address:
            raise UrlForbidden(f"'{url}' is no http or https address of a page, or too long; give one without password")
        site = await self._sites.request(
            Site(
                id=self._ids.new(),
                tenant=owned.tenant,
                source_id=owned.id,
                url=address,
                max_pages=max_pages or min(DEFAULT_PAGES, self._most_pages),
                max_depth=max_depth,
                every=every,
            )
        )
        crawler.wake()
        yield await self._view(site)
        async with aclosing(self._watch(crawler, owned, site)) as steps:
            async for step in steps:
                yield step

    async def _watch(self, crawler: Crawler, source: Source, site: Site) -> AsyncGenerator[SiteView | SitePage]:
        seen = 0
        while True:
            now = await self._sites.get(source, site.id)
            pages = await self._sites.pages(site, after=seen)
            for page in pages:
                seen = page.number
                yield page
            if pages:
                continue
            if now.state is not SiteState.SYNCING or now.sync != site.sync:
                yield await self._view(now)
                return
            await crawler.changed(LOOK_SECONDS)

    async def list_sites(self, principal: Principal, source: str, *, size: int, token: str) -> SiteList:
        """Return a page of a source's sites, by address."""
        readable = await self._sources.find(principal, source)
        size = size or PAGE
        list_name = f"sites:{readable.id}"
        after = str(decode_token(list_name, token)[0]) if token else ""
        found = await self._sites.of_source(readable, after=after, limit=size + 1)
        shown = found[:size]
        counts = await self._counts(shown)
        return SiteList(
            sites=[SiteView(site=site, counts=counts.get(site.id, SiteCounts())) for site in shown],
            next_token=encode_token(list_name, shown[-1].url) if len(found) > size else "",
        )

    async def delete(self, principal: Principal, source: str, site_id: str) -> int:
        """Give a site up with the documents it brought; return how many those were."""
        owned = await self._library.changeable(principal, source)
        site = await self._sites.get(owned, site_id)
        paths = await self._sites.paths(site)
        await self._sites.remove(site)  # first, so that a sync under way brings nothing back
        gone = 0
        for path in paths:
            page = SitePage(site_id=site.id, url=path, depth=0, outcome=PageOutcome.GONE, path=path)
            gone += await forget_document(self._sites, self._documents, self._purger, site, page)
        return gone

    def _running(self) -> Crawler:
        if self._crawler is None:
            raise NotConfigured(
                "fetching pages is off; set PROCTOR_RETRIEVAL_FETCH_PAGES to true",
                metadata={"setting": "PROCTOR_RETRIEVAL_FETCH_PAGES"},
            )
        return self._crawler

    async def _view(self, site: Site) -> SiteView:
        return SiteView(site=site, counts=(await self._counts([site])).get(site.id, SiteCounts()))

    async def _counts(self, sites: Sequence[Site]) -> Mapping[str, SiteCounts]:
        return await self._sites.counts([site.id for site in sites])
