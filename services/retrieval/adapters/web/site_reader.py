"""Pages of sites: asked for by their validators, so that what has not changed does not travel again."""

from __future__ import annotations

import asyncio

import httpx

from services.chassis.clock import Clock
from services.retrieval.adapters.web.http_reader import HttpReader
from services.retrieval.domain.errors import PageUnavailable
from services.retrieval.domain.sites import SitePage, host_of, normal
from services.retrieval.site_ports import PageAnswer

# What a site may ask for between two pages.
LONGEST_DELAY = 30.0


class HttpSiteReader:
    """Implements the port SiteReader over a client that stands on CheckedTransport."""

    def __init__(self, client: httpx.AsyncClient, *, max_bytes: int, seconds: float, clock: Clock) -> None:
        self._reader = HttpReader(client, max_bytes, clock)
        self._seconds = seconds

    async def read(self, page: SitePage, host: str) -> PageAnswer:
        headers = {"If-None-Match": page.etag, "If-Modified-Since": page.last_modified}
        try:
            async with asyncio.timeout(self._seconds):
                answer = await self._reader.read(
                    page.url,
                    headers={name: value for name, value in headers.items() if value},
                    within=(lambda url: host_of(url) == host) if host else None,
                )
        except TimeoutError:
            raise PageUnavailable(f"'{page.url}' did not answer within {self._seconds:g} seconds") from None
        return PageAnswer(
            url=normal(answer.url) or page.url,
            body=answer.body,
            media_type=answer.media_type,
            etag=answer.etag[:512],
            last_modified=answer.last_modified[:64],
            unchanged=answer.unchanged,
        )

    async def delay(self, url: str) -> float:
        return min(await self._reader.delay(url), LONGEST_DELAY)
