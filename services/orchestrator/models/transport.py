"""The HTTP transport under the model clients: httpx's interface over aiohttp, whose parser is written in C.

With httpx's own transport every network read of a paced stream costs several times as much.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import aiohttp
import httpx2

from services.orchestrator.models.limits import Later, Timer, on_the_loop

# Opens the socket for a resolved address, or raises to refuse it; the last check before a connection.
SocketFactory = Callable[
    [tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]], socket.socket
]

Headers = list[tuple[str, str]]
CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 60.0
_READER = "proctor.reader"


class BodyReader(Protocol):
    """Reads the body of a response piece by piece."""

    async def read(self) -> bytes:
        """Return what has arrived since the last time, empty at the end. Raises httpx2's transport errors."""
        ...

    def hold(self, seconds: float) -> None:
        """Leave what arrives in the kernel for so many seconds, 0 for none; replaces an earlier hold.

        The next `read` then gives all of it. A connection that breaks meanwhile is found broken afterwards.
        """
        ...


def reader_of(response: httpx2.Response) -> BodyReader:
    """Return the reader of a response that is being streamed: straight from the socket's buffer where the response came
    through ModelTransport, which spares every read three generators of httpx2. Any other reader holds nothing.
    """
    return response.extensions.get(_READER) or _Pieces(response)


class ModelTransport(httpx2.AsyncBaseTransport):
    """One pool of connections. Time limits of reads are the caller's; only connecting is limited here.

    `later` sets the timers that end holds.
    `socket_factory` sees every address before it is connected to. Redirects are never followed. With
    `environment_proxies` the proxies of HTTP_PROXY and its like are used.
    """

    def __init__(
        self,
        *,
        max_connections: int = 1000,
        socket_factory: SocketFactory | None = None,
        environment_proxies: bool = False,
        later: Later = on_the_loop,
    ) -> None:
        self._max_connections = max_connections
        self._environment_proxies = environment_proxies
        self._socket_factory = socket_factory
        self._later = later
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send `request`; the response's stream gives the body as it comes. Raises httpx2's transport errors."""
        return await self.send(request, str(request.url), request.headers.multi_items(), request.read())

    async def send(self, request: httpx2.Request, url: str, headers: Headers, content: bytes) -> httpx2.Response:
        """Send what stands beside `request`, of which only the method counts; it is what errors and response refer to.

        For requests that differ in their content only. Raises httpx2's transport errors.
        """
        try:
            reply = await self._open_session().request(
                request.method, url, headers=headers, data=content or None, allow_redirects=False
            )
        except aiohttp.ClientConnectorError as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        except aiohttp.ClientError as error:
            raise httpx2.ReadError(str(error) or type(error).__name__, request=request) from error
        except TimeoutError as error:
            raise httpx2.ConnectTimeout("no connection in time", request=request) from error
        # The body is decompressed here; left in place, the header would have it done twice.
        told = [(name, value) for name, value in reply.raw_headers if name.lower() != b"content-encoding"]
        body = _Body(reply, request, self._later)
        return httpx2.Response(reply.status, headers=told, stream=body, request=request, extensions={_READER: body})

    async def aclose(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        # Made at the first request: aiohttp binds a session to the running loop.
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._max_connections,
                keepalive_timeout=KEEPALIVE_SECONDS,
                socket_factory=self._socket_factory,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                auto_decompress=True,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=None),
                trust_env=self._environment_proxies,
            )
        return self._session


class _Body(httpx2.AsyncByteStream):
    """The body of a reply: each piece is all that has arrived since the last one."""

    def __init__(self, reply: aiohttp.ClientResponse, request: httpx2.Request, later: Later) -> None:
        self._reply = reply
        self._request = request
        self._later = later
        self._held: asyncio.Transport | None = None
        self._timer: Timer | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self.read():
            yield piece

    async def read(self) -> bytes:
        """Return what has arrived since the last time, empty at the end."""
        try:
            return await self._reply.content.readany()
        except aiohttp.ClientError as error:
            raise httpx2.ReadError(str(error) or type(error).__name__, request=self._request) from error

    def hold(self, seconds: float) -> None:
        """Leave what arrives in the kernel for so long."""
        self._release()
        # After the end of the body the connection is another's.
        connection = self._reply.connection
        transport = connection.transport if connection is not None else None
        if seconds > 0 and transport is not None and transport.is_reading():
            transport.pause_reading()
            self._held = transport
            self._timer = self._later(seconds, self._release)

    async def aclose(self) -> None:
        # Closing an unread reply drops the connection, which is what stops the model; a read one returns to the pool.
        self._release()
        self._reply.close()

    def _release(self) -> None:
        if self._held is None or self._timer is None:
            return
        self._timer.cancel()
        held, self._held, self._timer = self._held, None, None
        held.resume_reading()


class _Pieces:
    """The body of a response that came another way."""

    def __init__(self, response: httpx2.Response) -> None:
        self._pieces = response.aiter_bytes()

    async def read(self) -> bytes:
        return await anext(self._pieces, b"")

    def hold(self, seconds: float) -> None:
        """Hold nothing: there is no socket to be left alone."""
