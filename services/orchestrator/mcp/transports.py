"""The two ways to a server: a process of ours over its pipes, or streamable HTTP."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx2
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp.shared.message import SessionMessage

from services.orchestrator.mcp.naming import visible
from services.orchestrator.mcp.settings import Credentials, OAuth, ServerSettings
from services.orchestrator.mcp.stdio import COMPLAINT_BYTES, Complaints, run_server

# One event of a stream; the results inside are bounded again when they are read.
MOST_EVENT_BYTES = 32 * 1024 * 1024
COMPLAINT_CHARACTERS = 400


@dataclass(slots=True)
class Wire:
    """What is known of a connection beside its messages.

    `ended` is set once the other side is gone.
    """

    ended: asyncio.Event = field(default_factory=asyncio.Event)
    complaints: Complaints = field(default_factory=Complaints)

    @property
    def said(self) -> str:
        """The last words on a process's standard error, for the operator."""
        return visible(self.complaints.kept.decode(errors="replace"), COMPLAINT_BYTES)[-COMPLAINT_CHARACTERS:]


@dataclass(slots=True)
class Attempt:
    """One sending of a request, and why it was never read: nobody listened, or the server has forgotten the session."""

    refused: bool = False
    forgotten: bool = False


# The library sends a request in the context of its caller, so this is the caller's own attempt.
current_attempt: ContextVar[Attempt | None] = ContextVar("current_attempt", default=None)


@asynccontextmanager
async def open_transport(
    settings: ServerSettings, credentials: Credentials, wire: Wire
) -> AsyncIterator[TransportStreams]:
    """Yield the streams of a new connection. Raises OSError when a process cannot be started."""
    opened = _stdio(settings, credentials, wire) if settings.is_local else _http(settings, credentials)
    async with opened as (reading, writing):
        yield _Watched(reading, wire), writing


@asynccontextmanager
async def _stdio(settings: ServerSettings, credentials: Credentials, wire: Wire) -> AsyncIterator[TransportStreams]:
    variables = {name: str.__str__(value) for name, value in credentials.variables.items()}
    cwd = settings.cwd or tempfile.gettempdir()
    async with run_server(settings.command, settings.args, variables, cwd, wire.complaints) as streams:
        yield streams


@asynccontextmanager
async def _http(settings: ServerSettings, credentials: Credentials) -> AsyncIterator[TransportStreams]:
    seconds = settings.connect_timeout.total_seconds()
    timeout = httpx2.Timeout(seconds, read=settings.timeout.total_seconds() + seconds)
    client = httpx2.AsyncClient(
        headers={name: str.__str__(value) for name, value in credentials.headers.items()},
        auth=_auth(settings.url, credentials.oauth) if credentials.oauth else None,
        timeout=timeout,
        transport=_Noting(httpx2.AsyncHTTPTransport()),
    )
    async with (
        client,
        streamable_http_client(settings.url, http_client=client, max_sse_event_size=MOST_EVENT_BYTES) as streams,
    ):
        yield streams


def _auth(url: str, oauth: OAuth) -> ClientCredentialsOAuthProvider:
    return ClientCredentialsOAuthProvider(
        server_url=url,
        storage=_Tokens(),
        client_id=oauth.client_id,
        client_secret=str.__str__(oauth.client_secret),
        scope=oauth.scope or None,
        issuer=oauth.issuer,
    )


class _Tokens:
    """Keeps the tokens of one connection in memory: each tenant has its own, and none is ever written."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class _Noting(httpx2.AsyncBaseTransport):
    """Notes what was never read and may be sent again."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        attempt = current_attempt.get()
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if attempt is not None:
                attempt.refused = True
            raise
        # The protocol's word for a session that the server does not know.
        if attempt is not None and response.status_code == 404 and MCP_SESSION_ID in request.headers:
            attempt.forgotten = True
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Watched:
    """A stream of messages that tells when it ends."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception], wire: Wire) -> None:
        self._inner = inner
        self._wire = wire

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, where the transport knows it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self._inner.receive()
        except BaseException:
            self._wire.ended.set()
            raise

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._inner.__anext__()
        except BaseException:
            self._wire.ended.set()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)
