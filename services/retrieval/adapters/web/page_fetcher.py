"""Public pages as clean text: checked addresses, limits of size and time, robots.txt, a small cache."""

from __future__ import annotations

import asyncio
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urljoin, urlsplit
from urllib.robotparser import RobotFileParser

import httpx

from services.chassis.clock import Clock
from services.retrieval.adapters.web.checked_transport import AddressForbidden
from services.retrieval.domain.errors import PageUnavailable, UnreadableFile, UrlForbidden
from services.retrieval.ports import Page, Parser

AGENT = "ProctorBot"
REDIRECTS = 5
CACHE_SECONDS = 600.0
CACHED_PAGES = 128
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


@dataclass(frozen=True, slots=True)
class _Answer:
    url: str
    body: bytes
    media_type: str


class HttpPageFetcher:
    """Implements the port PageFetcher. The client must stand on CheckedTransport and follow no redirects itself."""

    def __init__(self, client: httpx.AsyncClient, parser: Parser, limits: FetchLimits, clock: Clock) -> None:
        self._client = client
        self._parser = parser
        self._limits = limits
        self._clock = clock
        self._pages: OrderedDict[str, tuple[float, Page]] = OrderedDict()
        self._robots: OrderedDict[str, tuple[float, RobotFileParser]] = OrderedDict()

    async def fetch(self, url: str) -> Page:
        kept = self._pages.get(url)
        if kept and kept[0] > self._clock.monotonic():
            return kept[1]
        try:
            async with asyncio.timeout(self._limits.seconds):
                page = await self._read(url)
        except TimeoutError:
            raise PageUnavailable(f"'{url}' did not answer within {self._limits.seconds:g} seconds") from None
        _keep(self._pages, url, (self._clock.monotonic() + CACHE_SECONDS, page))
        return page

    async def close(self) -> None:
        await self._client.aclose()

    async def _read(self, url: str) -> Page:
        answer = await self._follow(url, robots=True)
        suffix = _SUFFIXES.get(answer.media_type, Path(urlsplit(answer.url).path).suffix or ".txt")
        with tempfile.TemporaryDirectory(prefix="proctor-page-") as folder:
            path = Path(folder) / "page"
            await asyncio.to_thread(path.write_bytes, answer.body)
            try:
                parsed = await self._parser.parse(path, f"page{suffix}")
                blocks = await asyncio.to_thread(list, parsed.blocks)
            except UnreadableFile as refusal:
                raise PageUnavailable(f"'{url}' cannot be read: {refusal.message}") from None
        return Page(url=answer.url, title=parsed.title, text="\n\n".join(block.text for block in blocks))

    async def _follow(self, url: str, *, robots: bool) -> _Answer:
        for _ in range(REDIRECTS + 1):
            _check_form(url)
            if robots and not await self._allowed(url):
                raise UrlForbidden(f"'{url}' may not be fetched by programs: its site's robots.txt says so")
            answer = await self._get(url)
            if isinstance(answer, _Answer):
                return answer
            url = urljoin(url, answer)
        raise PageUnavailable(f"'{url}' redirects more than {REDIRECTS} times")

    async def _get(self, url: str) -> _Answer | str:
        """Return the answer, or where it redirects to."""
        try:
            async with self._client.stream("GET", url, headers={"User-Agent": AGENT}) as response:
                if response.has_redirect_location:
                    return response.headers["location"]
                if response.status_code >= 400:
                    raise PageUnavailable(f"'{url}' answered {response.status_code}")
                body = b"".join([chunk async for chunk in self._bounded(url, response)])
                media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                return _Answer(url, body, media_type)
        except AddressForbidden:
            raise UrlForbidden(
                f"'{url}' leads to an address that is not public; only public pages are fetched", metadata={"url": url}
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as failure:
            raise PageUnavailable(f"'{url}' cannot be reached ({type(failure).__name__})") from failure

    async def _bounded(self, url: str, response: httpx.Response) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > self._limits.max_bytes:
                raise PageUnavailable(f"'{url}' is larger than {self._limits.max_bytes // 2**10} KiB")
            yield chunk

    async def _allowed(self, url: str) -> bool:
        parts = urlsplit(url)
        site = f"{parts.scheme}://{parts.netloc}"
        kept = self._robots.get(site)
        if kept is None or kept[0] <= self._clock.monotonic():
            kept = (self._clock.monotonic() + CACHE_SECONDS, await self._rules(site))
            _keep(self._robots, site, kept)
        return kept[1].can_fetch(AGENT, url)

    async def _rules(self, site: str) -> RobotFileParser:
        rules = RobotFileParser()
        try:
            answer = await self._follow(f"{site}/robots.txt", robots=False)
            rules.parse(answer.body.decode("utf-8", errors="replace").splitlines())
        except PageUnavailable:
            rules.parse([])  # a site without rules allows everything (RFC 9309)
        return rules


def _check_form(url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UrlForbidden(f"'{url}' is no URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UrlForbidden(f"'{url}' is no http or https URL")
    if parts.username or parts.password:
        raise UrlForbidden(f"'{url}' carries a password; leave it out")
    if port == 0:
        raise UrlForbidden(f"'{url}' names port 0")


T = TypeVar("T")


def _keep(cache: OrderedDict[str, T], key: str, value: T) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > CACHED_PAGES:
        cache.popitem(last=False)
