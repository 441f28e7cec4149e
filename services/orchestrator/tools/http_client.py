"""HTTP for tools and workflow nodes: checked addresses, checked redirects, limits of time and size.

A name is resolved and every address judged before the request; what is connected to is judged again when the socket is
opened, so a name server that answers differently the second time changes nothing. No proxy, no cookie, no kept
connection: each would get round that judgement.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from services.orchestrator.models.errors import UrlForbidden, forbidden
from services.orchestrator.models.own.addresses import Resolve, UrlGuard, resolve

REDIRECTS = 5
_REDIRECT = frozenset({301, 302, 303, 307, 308})
_SAFE = frozenset({"GET", "HEAD"})
_AGENT = "Proctor"
# Headers that a reply may show; the others are the transport's own business.
_TOLD = frozenset({"content-type", "etag", "last-modified", "link", "location", "retry-after"})


class HttpFailed(Exception):
    """The request came to no reply; the message is for the model and names neither query nor header.

    `sent` is False when no connection was made, so that nothing can have happened.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Bounds of one request with its redirects: seconds in all, bytes of the body after decompression."""

    seconds: float = 30.0
    max_bytes: int = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """What to send. `secrets` are headers with credentials: they are sent to the URL's own origin only."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """What came back, at most `max_bytes` of it. `media_type` is lower case without parameters."""

    status: int
    url: str
    media_type: str
    charset: str
    headers: Mapping[str, str]
    body: bytes
    truncated: bool

    @property
    def text(self) -> str:
        """The body as text, unreadable bytes marked."""
        try:
            return self.body.decode(self.charset or "utf-8", errors="replace")
        except LookupError:
            return self.body.decode(errors="replace")


class CheckedHttpClient:
    """Sends requests to public addresses, and to those that its guard allows. Redirects are followed for GET and HEAD;
    another method becomes GET after 303 and is not sent anywhere else.
    """

    def __init__(self, guard: UrlGuard, limits: HttpLimits | None = None, lookup: Resolve = resolve) -> None:
        self._guard = guard
        self._limits = limits or HttpLimits()
        self._lookup = lookup

    async def send(self, request: HttpRequest, limits: HttpLimits | None = None) -> HttpReply:
        """Return the reply, whatever its status. Raises UrlForbidden for an address that may not be connected to and
        HttpFailed when there is no reply.
        """
        limits = limits or self._limits
        try:
            async with asyncio.timeout(limits.seconds):
                return await self._follow(request, limits.max_bytes)
        except TimeoutError:
            raise HttpFailed(f"{shown(request.url)} did not answer within {limits.seconds:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError, zlib.error) as error:
            if forbidden(error):
                raise UrlForbidden(f"{shown(request.url)} leads to an address that is not public") from None
            sent = not isinstance(error, aiohttp.ClientConnectorError | aiohttp.InvalidURL)
            raise HttpFailed(f"{shown(request.url)} cannot be reached ({type(error).__name__})", sent=sent) from error

    async def _follow(self, request: HttpRequest, max_bytes: int) -> HttpReply:
        for _ in range(REDIRECTS + 1):
            await self._check(request.url)
            reply = await self._once(request, max_bytes)
            target = reply.headers.get("location", "")
            if reply.status not in _REDIRECT or not target:
                return reply
            if request.method not in _SAFE and reply.status != 303:
                return reply
            request = _redirected(request, urljoin(request.url, target))
        raise HttpFailed(f"{shown(request.url)} redirects more than {REDIRECTS} times")

    async def _check(self, url: str) -> None:
        try:
            await self._guard.check(url)
        except UrlForbidden:
            # The guard's own words name the whole URL, whose query may hold a key.
            raise UrlForbidden(
                f"{shown(url)} may not be called: it must be an http(s) URL of a host with public addresses only"
            ) from None

    async def _once(self, request: HttpRequest, max_bytes: int) -> HttpReply:
        connector = aiohttp.TCPConnector(
            force_close=True,
            use_dns_cache=False,
            resolver=_Resolver(self._lookup),
            socket_factory=self._guard.open_socket,
        )
        headers = {"User-Agent": _AGENT, "Accept-Encoding": "gzip", **request.headers, **request.secrets}
        async with (
            aiohttp.ClientSession(
                connector=connector,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                trust_env=False,
            ) as session,
            session.request(
                request.method, request.url, headers=headers, data=request.body or None, allow_redirects=False
            ) as response,
        ):
            body, truncated = await _read(response, max_bytes)
            return HttpReply(
                status=response.status,
                url=request.url,
                media_type=response.content_type.lower(),
                charset=response.charset or "",
                headers={name.lower(): value for name, value in response.headers.items() if name.lower() in _TOLD},
                body=body,
                truncated=truncated,
            )


class _Resolver(AbstractResolver):
    """Gives aiohttp the addresses of a lookup of ours."""

    def __init__(self, lookup: Resolve) -> None:
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        del family
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await self._lookup(host, port)
        ]

    async def close(self) -> None:
        """Nothing is held."""


def shown(url: str) -> str:
    """Return a URL as it may be told: without user, query and fragment."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "the URL"
    return f"'{parts.scheme}://{parts.hostname or ''}{port}{parts.path}'"


def _redirected(request: HttpRequest, url: str) -> HttpRequest:
    """Return the request for a redirect: never a body, credentials only to the same origin, never from TLS to none."""
    before, after = urlsplit(request.url), urlsplit(url)
    if before.scheme == "https" and after.scheme != "https":
        raise HttpFailed(f"{shown(request.url)} redirects to a place without TLS")
    method = request.method if request.method in _SAFE else "GET"
    same = _origin(request.url) == _origin(url)
    kept = {name: value for name, value in request.headers.items() if not name.lower().startswith("content-")}
    return replace(request, method=method, url=url, headers=kept, body=b"", secrets=request.secrets if same else {})


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or (443 if parts.scheme == "https" else 80)


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> tuple[bytes, bool]:
    """Return at most `max_bytes` of the decompressed body; a bomb is inflated only that far."""
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip"):
        raise HttpFailed(f"{shown(str(response.url))} answered in the encoding '{encoding}', which was not asked for")
    inflate = zlib.decompressobj(wbits=31) if "gzip" in encoding else None
    pieces: list[bytes] = []
    size = 0
    while piece := await response.content.readany():
        if inflate is not None:
            piece = inflate.decompress(piece, max_bytes + 1 - size)
        pieces.append(piece)
        size += len(piece)
        if size > max_bytes:
            return b"".join(pieces)[:max_bytes], True
    return b"".join(pieces), False


def guard_of(networks: Sequence[str] = ()) -> UrlGuard:
    """Return a guard that allows public addresses and `networks` such as 10.1.0.0/16. Raises ValueError."""
    return UrlGuard(tuple(map(ipaddress.ip_network, networks)))
