"""Server-sent events: a response that keeps the connection warm, ends when told to, and always closes its source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

KEEPALIVE = b": keep-alive\n\n"
HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    "Connection": "keep-alive",
}


class EventStream(StreamingResponse):
    """A `text/event-stream` response over an async generator of chunks, closed also when the client leaves.

    With `watch_client` off the response does not listen for the client's leaving: for a route that still reads its
    request's body while it answers.
    """

    def __init__(self, chunks: AsyncGenerator[bytes], *, watch_client: bool = True) -> None:
        super().__init__(chunks, media_type="text/event-stream", headers=HEADERS)
        self._chunks = chunks
        self._watch_client = watch_client

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._chunks):
            await super().stream_response(send)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._watch_client:
            await super().__call__(scope, receive, send)
        else:
            await self.stream_response(send)


async def warm(
    chunks: AsyncGenerator[bytes], every: timedelta, *until: asyncio.Event, farewell: bytes = b""
) -> AsyncGenerator[bytes]:
    """Yield `chunks`, a comment after each silence of `every`; end with `farewell` once an event of `until` is set."""
    stops = [asyncio.ensure_future(event.wait()) for event in until]
    pending: asyncio.Future[bytes] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(_next(chunks))
            waiting: list[asyncio.Future[Any]] = [pending, *stops]
            await asyncio.wait(waiting, timeout=every.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
            if any(stop.done() for stop in stops):
                yield farewell
                return
            if not pending.done():
                yield KEEPALIVE
                continue
            done, pending = pending, None
            yield done.result()
    except _End:
        return
    finally:
        tasks: list[asyncio.Future[Any]] = [*stops, *([pending] if pending is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await chunks.aclose()


class _End(Exception):
    """The source is exhausted; StopAsyncIteration cannot travel through a future."""


async def _next(chunks: AsyncIterator[bytes]) -> bytes:
    try:
        return await anext(chunks)
    except StopAsyncIteration:
        raise _End from None
