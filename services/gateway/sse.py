"""Server-sent events: a response that keeps the connection warm, ends when told to, and always closes its source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from services.gateway.ending import Ending
from services.gateway.protojson import dumps

KEEPALIVE = b": keep-alive\n\n"
HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    "Connection": "keep-alive",
}


class Last(bytes):
    """The chunk that ends a stream: it leaves in one write with the response's end, and nothing is read after it."""


def data(frame: Mapping[str, Any]) -> bytes:
    """Return a frame as an event without a name."""
    return b"data: %s\n\n" % dumps(frame)


class EventStream(StreamingResponse):
    """A `text/event-stream` response over an async generator of chunks, which it closes whatever happens.

    A comment is sent after each silence of `keepalive`. Once one of `until` is set the stream ends with `farewell`;
    when the client leaves it just ends. With `watch_client` off nobody listens for the client's leaving: for a route
    that still reads its request's body while it answers.
    """

    def __init__(
        self,
        chunks: AsyncGenerator[bytes],
        keepalive: timedelta,
        *,
        until: Sequence[Ending] = (),
        farewell: bytes = b"",
        watch_client: bool = True,
    ) -> None:
        super().__init__(chunks, media_type="text/event-stream", headers=HEADERS)
        self._chunks = chunks
        self._keepalive = keepalive
        self._until = until
        self._farewell = farewell
        self._watch_client = watch_client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream in the caller's own task: a chunk costs neither a task nor a wait of its own."""
        async with aclosing(self._chunks):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            stop = _Stop()
            pipe = _Pipe(send, self._keepalive.total_seconds())
            watching = [asyncio.create_task(_watch(receive, stop))] if self._watch_client else []
            try:
                last = await self._sent(pipe, stop)
                if last is not None and not stop.client_left:
                    await pipe.end(last)
            finally:
                await pipe.close(*watching)

    async def _sent(self, pipe: _Pipe, stop: _Stop) -> bytes | None:
        """Send the chunks; return what the response is still to end with, the farewell when they were stopped."""
        try:
            async with stop.limit:
                for ending in self._until:
                    ending.tell(stop)
                async for chunk in self._chunks:
                    if isinstance(chunk, Last):
                        await pipe.end(chunk)
                        return None
                    await pipe.send(chunk)
        except TimeoutError:
            if not stop.limit.expired():
                raise
            return self._farewell
        finally:
            stop.called = True
            for ending in self._until:
                ending.forget(stop)
        return b""


class _Stop:
    """Ends the block under its `limit` when it is called, the first time only."""

    def __init__(self) -> None:
        self.limit = asyncio.timeout(None)
        self.called = False
        self.client_left = False

    def __call__(self) -> None:
        if not self.called:
            self.called = True
            self.limit.reschedule(asyncio.get_running_loop().time())


async def _watch(receive: Receive, stop: _Stop) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stop.client_left = True
    stop()


class _Pipe:
    """Sends one thing at a time, and a comment when nothing was sent for `every` seconds."""

    def __init__(self, send: Send, every: float) -> None:
        self._send = send
        self._every = every
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        self._sent_at = self._loop.time()
        self._comment: asyncio.Task[None] | None = None
        # One timer that is set anew when it rings, not with each chunk.
        self._timer = self._loop.call_later(every, self._look)

    async def send(self, chunk: bytes) -> None:
        """Send a chunk; returns when the connection takes more."""
        async with self._sending:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
            self._sent_at = self._loop.time()

    async def end(self, chunk: bytes) -> None:
        """Send the last chunk, and no comment behind it."""
        self._hush()
        async with self._sending:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": False})

    def _look(self) -> None:
        silence = self._loop.time() - self._sent_at
        if silence >= self._every:
            silence = 0.0
            if not self._sending.locked():
                self._comment = self._loop.create_task(self.send(KEEPALIVE))
        self._timer = self._loop.call_later(self._every - silence, self._look)

    def _hush(self) -> None:
        """Send no more comments."""
        self._timer.cancel()
        if self._comment is not None:
            self._comment.cancel()

    async def close(self, *others: asyncio.Task[None]) -> None:
        """Send no more comments, and return when the task of the last one and `others` have ended."""
        self._hush()
        for task in others:
            task.cancel()
        tasks = [*others, self._comment] if self._comment is not None else others
        if tasks:
            await asyncio.wait(tasks)
