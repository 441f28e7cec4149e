"""The way of one tenant to one server: connects when needed, again after a break, and not too often."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from mcp_types import CallToolResult, InputRequiredResult, InputResponses

from services.chassis.clock import Clock
from services.orchestrator.mcp.ports import Link, Listing, Progress, ServerUnreachable
from services.orchestrator.mcp.session import NotRead, Questioned, Session, current_call
from services.orchestrator.mcp.settings import Credentials, ServerSettings

_log = logging.getLogger(__name__)
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
# Calls at once on one session; further ones wait within their deadline.
CALLS_AT_ONCE = 32
OpenSession = Callable[[ServerSettings, Credentials, Callable[[Listing], None]], Session]


class Unreachable(ServerUnreachable):
    """There is no session now."""

    code = grpc.StatusCode.UNAVAILABLE


class Connection:
    """One server for one tenant. What it lists is remembered while it is away."""

    def __init__(
        self,
        settings: ServerSettings,
        credentials: Credentials,
        clock: Clock,
        open_session: OpenSession = Session,
    ) -> None:
        self.settings = settings
        self._credentials = credentials
        self._clock = clock
        self._open_session = open_session
        self._session: Session | None = None
        self._connecting: asyncio.Task[Session] | None = None
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._failures = 0
        self._not_before = 0.0
        self._used = clock.monotonic()
        self._closed = False
        self.listing: Listing | None = None
        self.problem = ""
        self.open_calls = 0

    @property
    def link(self) -> Link:
        """State of the way."""
        if self._session is not None and self._session.link is Link.CONNECTED:
            return Link.CONNECTED
        return Link.BROKEN if self.problem else Link.IDLE

    async def connect(self) -> Session:
        """Return a live session. Raises Unreachable, at once while it is too early to try again."""
        if self._session is not None and self._session.link is Link.CONNECTED:
            return self._session
        if self._closed:
            raise self._unreachable("its settings have changed; call the tool again")
        connecting = self._connecting
        if connecting is None:
            left = self._not_before - self._clock.monotonic()
            if left > 0:
                raise self._unreachable(f"{self.problem}; tried again in {left:.0f} s")
            connecting = self._connecting = asyncio.create_task(self._connect())
            connecting.add_done_callback(self._connected)
        # Whoever leaves does not take the way from those who wait with them.
        return await asyncio.shield(connecting)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        progress: Progress,
        caller: Questioned,
        *,
        state: str | None = None,
        responses: InputResponses | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Send one call, again on a new session when the first was never read.

        Raises Unreachable, CallBroken, CallRefused.
        """
        current_call.set(caller)
        self.open_calls += 1
        try:
            async with self._slots:
                try:
                    return await self._call(name, arguments, progress, caller, state, responses)
                except NotRead:
                    return await self._call(name, arguments, progress, caller, state, responses)
        except NotRead as error:
            raise self._unreachable("it does not answer") from error
        finally:
            self.open_calls -= 1
            self._used = self._clock.monotonic()

    async def _call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        progress: Progress,
        caller: Questioned,
        state: str | None,
        responses: InputResponses | None,
    ) -> CallToolResult | InputRequiredResult:
        session = await self.connect()
        session.open_calls.add(caller)
        try:
            return await session.call(name, arguments, progress, state=state, responses=responses)
        finally:
            session.open_calls.discard(caller)

    async def rest(self) -> None:
        """Close a session that nobody has used for a while."""
        idle = self._clock.monotonic() - self._used > self.settings.idle.total_seconds()
        if idle and not self.open_calls and self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def close(self) -> None:
        """Close for good."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _connect(self) -> Session:
        if self._session is not None:
            await self._session.close()
            self._session = None
        session = self._open_session(self.settings, self._credentials, self._changed)
        try:
            listing = await session.open()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            raise self._failed(session, error) from error
        self._session, self._failures, self.problem = session, 0, ""
        self._used = self._clock.monotonic()
        self._changed(listing)
        _log.info("connected to MCP server '%s': %d tools", self.settings.name, len(listing.tools))
        return session

    def _failed(self, session: Session, error: Exception) -> Unreachable:
        pause = min(FIRST_PAUSE * 2**self._failures, LONGEST_PAUSE)
        self._failures += 1
        self._not_before = self._clock.monotonic() + pause
        self.problem = _words(error, self.settings)
        said = session.said
        _log.warning("MCP server '%s': %s%s", self.settings.name, self.problem, f"; it says: {said}" if said else "")
        return self._unreachable(self.problem)

    def _connected(self, task: asyncio.Task[Session]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # retrieved, also when everybody who waited has left

    def _changed(self, listing: Listing) -> None:
        self.listing = listing

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(
            f"the tool server '{self.settings.name}' cannot be reached: {why}",
            metadata={"server": self.settings.name},
        )


def _words(error: Exception, settings: ServerSettings) -> str:
    """Say what went wrong without a word that could hold a secret: addresses and headers stay out."""
    match error:
        case TimeoutError():
            return f"no session within {settings.connect_timeout.total_seconds():g} s"
        case FileNotFoundError():
            return f"there is no program '{settings.command}'"
        case PermissionError():
            return f"'{settings.command}' may not be run"
        case _:
            return f"the session could not be opened ({type(error).__name__})"
