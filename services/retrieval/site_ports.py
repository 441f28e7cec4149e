"""What following sites needs from outside, by role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.retrieval.domain.library import Source
from services.retrieval.domain.sites import PageLinks, Site, SiteCounts, SitePage, SiteState


class Sites(Protocol):
    """Keeps sites, their pages, and how far a sync has come. One worker holds a site at a time."""

    async def request(self, site: Site) -> Site:
        """Keep a site, or its new limits when its source has that address, and begin a sync unless one is under way."""

    async def claim(self) -> Site | None:
        """Take the next site to sync, or None. A site that nobody reports on is given out again after the lease."""

    async def recover(self) -> None:
        """Free what a process before us held, if only one process can use these tables at a time."""

    async def release(self, site: Site) -> None:
        """Give a site back in the middle of its sync, to be taken up by whoever comes next."""

    async def get(self, source: Source, site_id: str) -> Site:
        """Return one site, or raise SiteNotFound."""

    async def of_source(self, source: Source, *, after: str, limit: int) -> list[Site]:
        """Return sites by address, those after the address `after`."""

    async def counts(self, site_ids: Sequence[str]) -> Mapping[str, SiteCounts]:
        """Return how many pages of each site stand where."""

    async def next_page(self, site: Site) -> SitePage | None:
        """Return the page whose turn it is in the site's sync, or None when all were dealt with."""

    async def settle(self, site: Site, page: SitePage, links: Sequence[tuple[str, int]], read_bytes: int) -> bool:
        """Record what became of a page, queue the addresses it leads to with their depths, and extend the lease.

        False when the site is gone or its sync is over.
        """

    async def finish(self, site: Site, state: SiteState, message: str) -> None:
        """End the sync; the next one is due after `site.every`."""

    async def cut(self, site: Site) -> bool:
        """Return whether a limit kept pages out of this sync."""

    async def not_named(self, site: Site) -> list[SitePage]:
        """Return pages of earlier syncs that this one did not come across."""

    async def forget(self, page: SitePage) -> None:
        """Forget a page."""

    async def pages(self, site: Site, *, after: int = 0, limit: int = 500) -> list[SitePage]:
        """Return pages that this sync has dealt with, in order, those with a number above `after`."""

    async def paths(self, site: Site) -> list[str]:
        """Return the paths of the documents that the site brought."""

    async def holders(self, source_id: str, path: str) -> list[tuple[str, str]]:
        """Return which pages (site, address) of the source have become the document at this path."""

    async def remove(self, site: Site) -> None:
        """Forget a site and its pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAnswer:
    """What a page of a site answered in the end; `unchanged` without a body, when its validators still hold."""

    url: str
    body: bytes
    media_type: str
    etag: str = ""
    last_modified: str = ""
    unchanged: bool = False


class SiteReader(Protocol):
    """Reads pages of sites as their robots.txt allows."""

    async def read(self, page: SitePage, host: str) -> PageAnswer:
        """Return the page; it may lead to `host` only, anywhere while that is empty.

        Raises UrlForbidden, PageElsewhere, PageGone and PageUnavailable, the last with `retry_after` if the site says.
        """

    async def delay(self, url: str) -> float:
        """Return the seconds between two pages that the site asks for; 0 when it does not."""


class LinkParser(Protocol):
    """Finds out where a page leads."""

    async def links(self, path: Path, url: str) -> PageLinks:
        """Return the links of the page that `url` answered, or raise UnreadableFile."""
