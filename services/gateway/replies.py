"""Responses made from protobuf messages and from runs' events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from fastapi import Response
from google.protobuf.message import Message

from proctor.orchestrator.v1 import events_pb2
from services.gateway.auth import Caller
from services.gateway.dependencies import Parts
from services.gateway.projections.native import is_terminal
from services.gateway.protojson import to_json_bytes
from services.gateway.sse import EventStream, Last
from services.gateway.streams import Batch, Batches

Chunk = Callable[[Sequence[events_pb2.RunEvent]], bytes]


def json_reply(message: Message, status: int = 200) -> Response:
    """Return the message as JSON."""
    return Response(to_json_bytes(message), status_code=status, media_type="application/json")


async def opened(batches: Batches) -> Batches:
    """Wait for the first batch, so that a refusal is still an HTTP status, and return the whole stream with it."""
    first = await anext(batches, None)
    return _prepended(first, batches)


async def _prepended(first: Batch | None, rest: Batches) -> Batches:
    async with aclosing(rest):
        if first is not None:
            yield first
        async for batch in rest:
            yield batch


def stream_reply(chunks: AsyncGenerator[bytes], parts: Parts, caller: Caller, *, farewell: bytes = b"") -> EventStream:
    """Return an event stream that ends when the caller's credential lapses or the gateway stops."""
    until = (caller.lapsed, parts.draining)
    return EventStream(chunks, parts.settings.keepalive, until=until, farewell=farewell)


async def chunked(batches: Batches, chunk: Chunk) -> AsyncGenerator[bytes]:
    """Yield each batch as one chunk, the terminal event's as the last; an empty chunk is left out."""
    async with aclosing(batches):
        async for batch in batches:
            data = chunk(batch)
            if data:
                yield Last(data) if is_terminal(batch[-1]) else data
