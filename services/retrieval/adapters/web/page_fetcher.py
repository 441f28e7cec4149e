"""Public pages as clean text: read politely, parsed like a document, kept for a while."""

from __future__ import annotations

import asyncio
import tempfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from services.chassis.clock import Clock
from services.retrieval.adapters.web.http_reader import HttpReader, keep
from services.retrieval.domain.errors import PageUnavailable, UnreadableFile
from services.retrieval.ports import Page, Parser

CACHE_SECONDS = 600.0
CACHED_PAGES = 128
# More than anybody may ask for of one page.
MOST_CHARACTERS = 1_000_000
_SUFFIXES = {
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "text/markdown": ".md",
    "application/json": ".json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """Bounds of one page: seconds in all, bytes of its body."""

    seconds: float
    max_bytes: int


class HttpPageFetcher:
    """Implements the port PageFetcher. The client must stand on CheckedTransport and follow no redirects itself."""

    def __init__(self, client: httpx.AsyncClient, parser: Parser, limits: FetchLimits, clock: Clock) -> None:
        self._reader = HttpReader(client, limits.max_bytes, clock)
        self._parser = parser
        self._seconds = limits.seconds
        self._clock = clock
        self._pages: OrderedDict[str, tuple[float, Page]] = OrderedDict()

    async def fetch(self, url: str) -> Page:
        kept = self._pages.get(url)
        if kept and kept[0] > self._clock.monotonic():
            return kept[1]
        try:
            async with asyncio.timeout(self._seconds):
                page = await self._read(url)
        except TimeoutError:
            raise PageUnavailable(f"'{url}' did not answer within {self._seconds:g} seconds") from None
        keep(self._pages, url, (self._clock.monotonic() + CACHE_SECONDS, page), CACHED_PAGES)
        return page

    async def close(self) -> None:
        await self._reader.close()

    async def _read(self, url: str) -> Page:
        answer = await self._reader.read(url)
        suffix = _SUFFIXES.get(answer.media_type, Path(urlsplit(answer.url).path).suffix or ".txt")
        with tempfile.TemporaryDirectory(prefix="proctor-page-") as folder:
            path = Path(folder) / "page"
            await asyncio.to_thread(path.write_bytes, answer.body)
            try:
                found = await self._parser.text(path, f"page{suffix}", MOST_CHARACTERS)
            except UnreadableFile as refusal:
                raise PageUnavailable(f"'{url}' cannot be read: {refusal.message}") from None
        return Page(url=answer.url, title=found.title, text=found.text)
