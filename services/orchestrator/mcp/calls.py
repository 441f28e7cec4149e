"""Calls that are under way: a server may ask in the middle of one, and the answer may come after a pause of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from mcp_types import CallToolResult, InputRequiredResult

from services.chassis.clock import Ids
from services.orchestrator.mcp.ports import Progress

Outcome = CallToolResult | InputRequiredResult
# Calls kept open for an answer at the same time; beyond that a server's question is cancelled.
MOST_KEPT = 256


@dataclass(frozen=True, slots=True)
class Question:
    """What a server asks in the middle of a call: a request for input, as plain JSON."""

    request: Mapping[str, Any]


class OpenCall:
    """One call in a task of its own, which outlives the leg that began it. Its questions come one at a time."""

    def __init__(self, progress: Progress) -> None:
        # Where progress goes: to the journal of the leg that waits, and nowhere while the run is paused.
        self.progress: Progress | None = progress
        self._task: asyncio.Task[Outcome] | None = None
        self._turn = asyncio.Lock()
        self._asked: asyncio.Queue[Question] = asyncio.Queue(maxsize=1)
        self._answer: asyncio.Future[dict[str, Any]] | None = None

    def begin(self, work: Coroutine[Any, Any, Outcome]) -> None:
        """Start the call."""
        self._task = asyncio.create_task(work)

    def tell(self, done: float, total: float | None, words: str) -> None:
        """Pass progress on to whoever waits."""
        if self.progress is not None:
            self.progress(done, total, words)

    async def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Put a question and return its answer; called by the session."""
        async with self._turn:
            self._answer = asyncio.get_running_loop().create_future()
            await self._asked.put(Question(request))
            return await self._answer

    def answer(self, reply: dict[str, Any]) -> None:
        """Give the answer to the question that is open."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(reply)

    async def next(self) -> Outcome | Question:
        """Return the call's outcome, or the next question before it. Raises what the call raised."""
        assert self._task is not None
        asking = asyncio.ensure_future(self._asked.get())
        try:
            await asyncio.wait({self._task, asking}, return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                return self._task.result()
            return asking.result()
        finally:
            asking.cancel()

    async def stop(self) -> None:
        """Cancel the call, which tells the server."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.exception()


class KeptCalls:
    """Calls that wait for a person while their run is paused, by a token that only this process knows."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._kept: dict[str, tuple[OpenCall, asyncio.TimerHandle]] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    def keep(self, call: OpenCall, within: timedelta) -> str:
        """Keep a call and return its token, empty when there is no room. After `within` it is stopped."""
        if len(self._kept) >= MOST_KEPT:
            return ""
        token = self._ids.new()
        call.progress = None
        timer = asyncio.get_running_loop().call_later(within.total_seconds(), self._expire, token)
        self._kept[token] = (call, timer)
        return token

    def take(self, token: str) -> OpenCall | None:
        """Return the call of a token, None when this process has none (any more)."""
        kept = self._kept.pop(token, None)
        if kept is None:
            return None
        kept[1].cancel()
        return kept[0]

    async def close(self) -> None:
        """Stop every call."""
        for token in list(self._kept):
            self._expire(token)
        if self._stopping:
            await asyncio.wait(self._stopping)

    def _expire(self, token: str) -> None:
        call = self.take(token)
        if call is not None:
            task = asyncio.create_task(call.stop())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
