"""Following sites: one page after another, politely, durably; whatever stops it is taken up again where it stood.

Each page is settled in one transaction with the addresses it leads to, after its document is searchable. So a crash
costs at most one page, which is read again and found unchanged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from services.chassis.clock import Clock
from services.chassis.errors import ServiceError
from services.retrieval.domain.sites import PageOutcome, Site, SitePage, SiteState
from services.retrieval.page_intake import LONGEST_WAIT, PageIntake, Settled, SiteFailed
from services.retrieval.site_ports import SiteReader, Sites

log = logging.getLogger(__name__)

IDLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Politeness:
    """Bounds of a sync: seconds between two pages (a site may ask for more), and bytes of all pages together."""

    delay: float = 1.0
    site_bytes: int = 2**30


class Crawler:
    """Works off sites whose sync is due, one page of a site at a time."""

    def __init__(
        self,
        sites: Sites,
        intake: PageIntake,
        reader: SiteReader,
        politeness: Politeness,
        clock: Clock,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._sites = sites
        self._intake = intake
        self._reader = reader
        self._politeness = politeness
        self._clock = clock
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
        except SiteFailed as failure:
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

    async def _safely(self, site: Site, page: SitePage) -> Settled:
        try:
            return await self._intake.take(site, page)
        except (SiteFailed, ServiceError):
            raise
        except Exception:
            # One page that breaks us must not keep the others of its site waiting for ever.
            log.exception("a page could not be taken in", extra={"event": "site.page_failed", "site": site.id})
            told = "the page could not be taken in for a reason of our own; it is tried again at the next sync"
            return self._intake.failed(site, page, told)

    async def _close(self, site: Site) -> None:
        """End a sync whose pages were all dealt with: what it did not come across has vanished, if it saw all."""
        if await self._sites.cut(site):
            await self._end(site, f"stopped at {site.max_pages} pages; allow more pages to read the others")
            return
        for page in await self._sites.not_named(site):
            if not page.path:
                await self._sites.forget(page)
                continue
            gone = await self._intake.without(site, page, PageOutcome.GONE, "nothing leads to it any more")
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
