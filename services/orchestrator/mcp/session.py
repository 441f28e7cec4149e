"""One live session with a server, opened and closed inside one task as its library wants it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Protocol

from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    CallToolResult,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    Implementation,
    InputRequiredResult,
    InputResponses,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from services.orchestrator.mcp.listing import read_listing
from services.orchestrator.mcp.ports import CallBroken, CallRefused, Link, Listing, Progress
from services.orchestrator.mcp.settings import Credentials, ServerSettings
from services.orchestrator.mcp.transports import Attempt, Wire, current_attempt, open_transport

_log = logging.getLogger(__name__)
_ME = Implementation(name="proctor", version="1")


class Questioned(Protocol):
    """Takes the questions that a server asks while a call is open."""

    async def ask(self, request: Mapping[str, Any]) -> dict[str, Any]: ...


# The call for which the current task works; over HTTP a server's question comes back in the context of its call.
current_call: ContextVar[Questioned | None] = ContextVar("current_call", default=None)


class NotRead(Exception):
    """The server never read the request; it may be sent again."""


class Session:
    """A session from `open` to its end. `on_change` is told a new listing when the server says that it changed."""

    def __init__(
        self, settings: ServerSettings, credentials: Credentials, on_change: Callable[[Listing], None]
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._on_change = on_change
        self._wire = Wire()
        self._wake = asyncio.Event()
        self._stopping = False
        self._stale = False
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        # Calls at work, for the questions of servers that do not say to which call they belong.
        self.open_calls: set[Questioned] = set()

    @property
    def link(self) -> Link:
        """Whether calls can be sent."""
        return Link.CONNECTED if self._client is not None and not self._wire.ended.is_set() else Link.BROKEN

    @property
    def said(self) -> str:
        """The end of what a server's process wrote to its standard error."""
        return self._wire.said

    async def open(self) -> Listing:
        """Connect and return what the server offers. Raises TimeoutError, or whatever went wrong."""
        opened: asyncio.Future[Listing] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(opened), name=f"mcp {self._settings.name}")
        try:
            async with asyncio.timeout(self._settings.connect_timeout.total_seconds()):
                return await asyncio.shield(opened)
        except BaseException:
            opened.cancel()
            self._task.cancel()
            await asyncio.wait({self._task})
            raise

    async def close(self) -> None:
        """End the session; a process gets a moment to leave before it is killed."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        progress: Progress,
        *,
        state: str | None = None,
        responses: InputResponses | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Send one call. Cancelling tells the server. Raises NotRead, CallBroken, CallRefused."""
        assert self._client is not None
        attempt = Attempt()
        current_attempt.set(attempt)
        try:
            return await self._send(name, arguments, progress, state, responses)
        except MCPError as error:
            if attempt.forgotten:
                self._wire.ended.set()
                raise NotRead from error
            if error.code == HEADER_MISMATCH and self._client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                # The tool's schema changed since it was listed; the server has not run it.
                self._on_change(await read_listing(self._client))
                return await self._send(name, arguments, progress, state, responses)
            if error.code == CONNECTION_CLOSED:
                raise (NotRead if attempt.refused else CallBroken) from error
            raise CallRefused(str(error)) from error

    async def _send(
        self,
        name: str,
        arguments: Mapping[str, Any],
        progress: Progress,
        state: str | None,
        responses: InputResponses | None,
    ) -> CallToolResult | InputRequiredResult:
        assert self._client is not None

        show = progress

        async def told(progress: float, total: float | None, message: str | None) -> None:
            show(progress, total, message or "")

        return await self._client.session.call_tool(
            name,
            dict(arguments),
            read_timeout_seconds=None,
            progress_callback=told,
            input_responses=responses,
            request_state=state,
            allow_input_required=True,
        )

    # --- the life of the session ----------------------------------------------------------------------------------

    async def _live(self, opened: asyncio.Future[Listing]) -> None:
        try:
            await self._serve(opened)
        except asyncio.CancelledError:
            if not opened.done():
                opened.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 - a broken connection ends this task and nothing else
            if opened.done():
                _log.info("the session with MCP server '%s' broke: %s", self._settings.name, root(error))
            else:
                opened.set_exception(root(error))
        finally:
            self._client = None
            self._wire.ended.set()

    async def _serve(self, opened: asyncio.Future[Listing]) -> None:
        transport = open_transport(self._settings, self._credentials, self._wire)
        client = Client(
            transport,
            mode=self._settings.protocol.value,
            client_info=_ME,
            cache=None,
            elicitation_callback=self._elicit if self._settings.asks_questions else None,
            message_handler=self._heard,
        )
        ended = asyncio.create_task(self._watch_end())
        listening: asyncio.Task[None] | None = None
        try:
            async with client:
                listing = await read_listing(client)
                self._client = client
                listening = asyncio.create_task(self._listen(client))
                if not opened.done():
                    opened.set_result(listing)
                await self._keep(client)
        finally:
            for task in (ended, listening):
                if task is not None:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task

    async def _keep(self, client: Client) -> None:
        """Stay until the session is to end or has ended; read the tools again whenever they changed."""
        while not self._over:
            await self._wake.wait()
            self._wake.clear()
            if self._stale and not self._over:
                self._stale = False
                self._on_change(await read_listing(client))

    @property
    def _over(self) -> bool:
        return self._stopping or self._wire.ended.is_set()

    async def _watch_end(self) -> None:
        await self._wire.ended.wait()
        self._wake.set()

    async def _listen(self, client: Client) -> None:
        """Hear of changes on servers of the newer protocol, which must be listened to."""
        tools = client.server_capabilities.tools
        announced = tools is not None and tools.list_changed
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not announced:
            return
        with suppress(MCPError, SubscriptionLost, TimeoutError):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._changed()

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._changed()

    def _changed(self) -> None:
        self._stale = True
        self._wake.set()

    async def _elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Bring a question that came in the middle of a call to that call."""
        del context
        call = current_call.get()
        if call is None and len(self.open_calls) == 1:
            (call,) = self.open_calls
        if call is None:
            # Whose question this is cannot be known, and another user's call must not answer it.
            _log.warning("a question of MCP server '%s' belongs to no single call", self._settings.name)
            return ElicitResult(action="cancel")
        return ElicitResult.model_validate(await call.ask(elicitation(params)))


def elicitation(params: ElicitRequestParams) -> dict[str, Any]:
    """Return a request for input as plain JSON."""
    if isinstance(params, ElicitRequestURLParams):
        return {"message": params.message, "url": params.url}
    return {"message": params.message, "requestedSchema": params.requested_schema}


def root(error: BaseException) -> BaseException:
    """Return the first failure inside groups of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
