"""Reading from the web politely: checked addresses, few redirects, limits of size, robots.txt."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import httpx
from protego import Protego

from services.chassis.clock import Clock
from services.retrieval.adapters.web.checked_transport import AddressForbidden
from services.retrieval.domain.errors import PageElsewhere, PageGone, PageUnavailable, UrlForbidden

AGENT = "ProctorBot"
REDIRECTS = 5
# How long a site's rules are believed.
RULES_SECONDS = 600.0
KEPT_RULES = 128
_EVERYTHING = Protego.parse("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an address answered in the end. `unchanged` is an answer to validators, without a body."""

    url: str
    body: bytes
    media_type: str
    etag: str = ""
    last_modified: str = ""
    unchanged: bool = False


class HttpReader:
    """Reads addresses. The client must stand on CheckedTransport and follow no redirects itself."""

    def __init__(self, client: httpx.AsyncClient, max_bytes: int, clock: Clock) -> None:
        self._client = client
        self._max_bytes = max_bytes
        self._clock = clock
        self._rules: OrderedDict[str, tuple[float, Protego]] = OrderedDict()

    async def read(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        within: Callable[[str], bool] | None = None,
        robots: bool = True,
    ) -> Answer:
        """Return what `url` answers, following redirects as far as `within` allows.

        Raises UrlForbidden, PageElsewhere, PageGone, and PageUnavailable with `retry_after` when the site names it.
        """
        asked = url
        for _ in range(REDIRECTS + 1):
            _check_form(url)
            if robots and not (await self._rules_of(url)).can_fetch(url, AGENT):
                raise UrlForbidden(f"'{url}' may not be fetched by programs: its site's robots.txt says so")
            answer = await self._get(url, headers or {})
            if isinstance(answer, Answer):
                return answer
            url = _joined(url, answer)
            if within is not None and not within(url):
                raise PageElsewhere(f"'{asked}' leads to another site: '{url}'")
        raise PageUnavailable(f"'{asked}' redirects more than {REDIRECTS} times")

    async def delay(self, url: str) -> float:
        """Return the seconds that the site asks programs to wait between two pages; 0 when it does not."""
        return float((await self._rules_of(url)).crawl_delay(AGENT) or 0.0)

    async def close(self) -> None:
        await self._client.aclose()

    async def _get(self, url: str, headers: Mapping[str, str]) -> Answer | str:
        """Return the answer, or where it redirects to."""
        try:
            async with self._client.stream("GET", url, headers={"User-Agent": AGENT, **headers}) as response:
                if response.has_redirect_location:
                    return response.headers["location"]
                self._refuse(url, response)
                body = b"".join([chunk async for chunk in self._bounded(url, response)])
                return Answer(
                    url=url,
                    body=body,
                    media_type=response.headers.get("content-type", "").partition(";")[0].strip().lower(),
                    etag=response.headers.get("etag", ""),
                    last_modified=response.headers.get("last-modified", ""),
                    unchanged=response.status_code == httpx.codes.NOT_MODIFIED,
                )
        except AddressForbidden:
            raise UrlForbidden(
                f"'{url}' leads to an address that is not public; only public pages are fetched", metadata={"url": url}
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as failure:
            raise PageUnavailable(f"'{url}' cannot be reached ({type(failure).__name__})") from failure

    def _refuse(self, url: str, response: httpx.Response) -> None:
        status = response.status_code
        if status < 400:
            return
        told = f"'{url}' answered {status}"
        if status in (404, 410):
            raise PageGone(told)
        metadata = {"status": str(status)}
        if status in (429, 503):
            raise PageUnavailable(told, metadata=metadata, retry_after=_seconds(response, self._clock.now()))
        raise PageUnavailable(told, metadata=metadata)

    async def _bounded(self, url: str, response: httpx.Response) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > self._max_bytes:
                raise PageUnavailable(f"'{url}' is larger than {self._max_bytes // 2**10} KiB")
            yield chunk

    async def _rules_of(self, url: str) -> Protego:
        parts = urlsplit(url)
        site = f"{parts.scheme}://{parts.netloc}"
        kept = self._rules.get(site)
        if kept is None or kept[0] <= self._clock.monotonic():
            kept = (self._clock.monotonic() + RULES_SECONDS, await self._read_rules(site))
            keep(self._rules, site, kept, KEPT_RULES)
        return kept[1]

    async def _read_rules(self, site: str) -> Protego:
        try:
            answer = await self.read(f"{site}/robots.txt", robots=False)
        except PageGone:
            return _EVERYTHING
        except PageUnavailable as failure:
            # RFC 9309, 2.3.1: a site that has no rules allows everything, one that is ill nothing for now.
            if failure.metadata.get("status", "").startswith("4"):
                return _EVERYTHING
            raise
        return Protego.parse(answer.body.decode("utf-8", errors="replace"))


def _seconds(response: httpx.Response, now: datetime) -> float | None:
    """Return the seconds of Retry-After, which may also be a date."""
    told = response.headers.get("retry-after", "").strip()
    if told.isdecimal():
        return float(told)
    try:
        return max((parsedate_to_datetime(told) - now).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:
        raise PageUnavailable(f"'{url}' redirects to what is no address: '{location[:200]}'") from None


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


def keep(cache: OrderedDict[str, T], key: str, value: T, most: int) -> None:
    """Put a value into a cache of at most `most`, the oldest going first."""
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > most:
        cache.popitem(last=False)
