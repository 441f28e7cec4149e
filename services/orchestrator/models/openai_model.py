"""The adapter to OpenAI-compatible endpoints: the `openai` client with its retries off, its streams read raw.

The two interfaces, Chat Completions and Responses, are dialects of it: how a request is written, how events are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Protocol

import httpx2
import openai
import orjson

from services.chassis.clock import Clock
from services.orchestrator.domain.messages import ToolCall, Usage
from services.orchestrator.models.chat_chunks import BadChunk, ChunkError
from services.orchestrator.models.coalescing import Coalescer
from services.orchestrator.models.errors import ModelError, ModelStreamBroken, ModelUnreachable
from services.orchestrator.models.layers import Events
from services.orchestrator.models.limits import Later, Limits, Watchdog, on_the_loop
from services.orchestrator.models.model_settings import ModelSettings
from services.orchestrator.models.openai_errors import from_chunk, from_client
from services.orchestrator.models.ports import ModelReply, ModelRequest
from services.orchestrator.models.posting import Poster
from services.orchestrator.models.reason import reason_names
from services.orchestrator.models.reply import ReplyBuilder
from services.orchestrator.models.sse import EventSplitter, EventTooLarge
from services.orchestrator.models.timing import CallClock
from services.orchestrator.models.tokens import estimate_tokens, message_tokens, tool_tokens
from services.orchestrator.models.transport import reader_of

# How long the end of the body is awaited after the reply is over, so that the connection can serve again.
DRAIN_SECONDS = 0.1
# More than any model's output limit; a server that never stops fills no memory.
MAX_REPLY_CHARACTERS = 8 * 1024 * 1024
_FAILURES = (openai.OpenAIError, httpx2.HTTPError, BadChunk, ChunkError, EventTooLarge, ModelError)
# A shorter key is a placeholder such as `none`, and may be a word of any message.
SECRET_CHARACTERS = 8


class Decoder(Protocol):
    """Reads the events of one stream into its reply."""

    @property
    def done(self) -> bool:
        """Whether nothing more can come."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the server said that the reply is over; a stream that just ends was cut."""
        ...

    def take(self, payload: bytes) -> None:
        """Read the data of one event. Raises BadChunk or ChunkError."""
        ...


class Dialect(Protocol):
    """One of the interfaces."""

    path: str

    def bodies(self, request: ModelRequest, settings: ModelSettings, names: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the bodies to send: the next one only when the server cannot go on from a stored response."""
        ...

    def decoder(self, reply: ReplyBuilder) -> Decoder: ...

    def response_id(self, reply: ReplyBuilder, request: ModelRequest, settings: ModelSettings) -> str:
        """Return the id that is kept with the message."""
        ...


class OpenAIModel:
    """One model behind an endpoint; each `stream` is one attempt."""

    def __init__(
        self,
        settings: ModelSettings,
        dialect: Dialect,
        poster: Poster,
        limits: Limits,
        clock: Clock,
        coalescer: Coalescer,
        later: Later = on_the_loop,
    ) -> None:
        self._settings = settings
        self._dialect = dialect
        self._poster = poster
        self._limits = limits
        self._clock = clock
        self._coalescer = coalescer
        self._later = later

    async def stream(self, request: ModelRequest, call: CallClock) -> Events:
        """Send the request and yield the reply as it comes."""
        names = reason_names(request.tools)
        bodies = self._dialect.bodies(request, self._settings, names)
        call.begin(self._settings.model_id)
        reply = ReplyBuilder(request.call_id, call.number, names)
        decoder = self._dialect.decoder(reply)
        watchdog = Watchdog(self._settings.model_id, self._limits, call, self._clock, self._later)
        outcome = "cancelled"
        try:
            async with aclosing(self._batches(bodies, decoder, watchdog, call)) as batches:
                async for batch in batches:
                    for portion in _portions(batch, call):
                        failure = _decode(portion, decoder)
                        if pieces := reply.take():
                            call.token(reply.taken_chunks)
                        for piece in pieces:
                            yield piece
                        if failure is None and reply.size > MAX_REPLY_CHARACTERS:
                            failure = ModelStreamBroken(
                                self._settings.model_id, f"wrote more than {MAX_REPLY_CHARACTERS} characters"
                            )
                        if failure is not None:
                            raise failure
            reply.close()
            if pieces := reply.take():
                call.token(reply.taken_chunks)
            for piece in pieces:
                yield piece
            if not decoder.complete:
                raise ModelStreamBroken(self._settings.model_id, "ended its stream before the reply was complete")
            outcome = ""
        except _FAILURES as failure:
            error = self._as_error(failure, reply)
            outcome = error.reason
            raise error from failure
        finally:
            watchdog.stop()
            call.end(outcome)
        yield self._reply(request, reply, call)

    async def _batches(
        self, bodies: Sequence[dict[str, Any]], decoder: Decoder, watchdog: Watchdog, call: CallClock
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield the data of the events that each network read completes."""
        with watchdog:
            response = await self._open(bodies)
        reads = self._coalescer.stream()
        try:
            if response.headers.get("content-type", "").startswith("application/json"):
                with watchdog:
                    whole = await response.aread()
                call.arrived()
                yield [whole]
                return
            splitter = EventSplitter()
            body = reader_of(response)
            while not decoder.done:
                # The first token is never kept waiting.
                if call.has_begun:
                    body.hold(reads.pause())
                try:
                    with watchdog:
                        received = await body.read()
                except httpx2.HTTPError:
                    if decoder.complete:
                        return
                    raise
                call.arrived()
                if not received:
                    yield splitter.finish()
                    return
                yield splitter.feed(received)
            with suppress(TimeoutError, httpx2.HTTPError):
                # The end follows at once, and is awaited for less than a stream may pause.
                body.hold(0)
                async with asyncio.timeout(DRAIN_SECONDS):
                    await body.read()
        finally:
            reads.end()
            await response.aclose()

    async def _open(self, bodies: Sequence[dict[str, Any]]) -> httpx2.Response:
        for body in bodies[:-1]:
            try:
                return await self._poster.post(orjson.dumps(body))
            except (openai.BadRequestError, openai.NotFoundError):
                # The stored response is gone or is another's: the next body carries the whole conversation.
                continue
        return await self._poster.post(orjson.dumps(bodies[-1]))

    def _as_error(self, failure: Exception, reply: ReplyBuilder) -> ModelError:
        model = self._settings.model_id
        error: ModelError
        if isinstance(failure, ModelError):
            error = failure
        elif isinstance(failure, ChunkError):
            error = from_chunk(model, failure)
        elif isinstance(failure, BadChunk | EventTooLarge):
            error = ModelStreamBroken(model, f"sent what is no chunk of a reply: {failure}")
        elif reply.any_piece:
            error = ModelStreamBroken(model, f"broke its stream: {failure}")
        elif isinstance(failure, openai.OpenAIError | httpx2.HTTPError):
            error = from_client(model, failure, self._clock)
        else:
            error = ModelUnreachable(model, f"failed: {failure}")
        if len(key := str(self._settings.api_key)) >= SECRET_CHARACTERS and key in error.message:
            # Some servers repeat the key that they refuse, and the message goes to users, journals and logs.
            error.message = error.message.replace(key, "***")
            error.args = (error.message,)
        error.after_first_token = reply.any_piece
        error.partial_text = reply.text
        return error

    def _reply(self, request: ModelRequest, reply: ReplyBuilder, call: CallClock) -> ModelReply:
        calls = reply.calls()
        usage = reply.usage or _estimated(request, reply, calls)
        return ModelReply(
            text=reply.text,
            reasoning=reply.reasoning,
            tool_calls=calls,
            finish_reason=reply.finish_reason(calls),
            usage=self._settings.priced(usage),
            model=self._settings.model_id,
            timing=call.timing(),
            response_id=self._dialect.response_id(reply, request, self._settings),
        )


def _portions(batch: Sequence[bytes], call: CallClock) -> Iterator[Sequence[bytes]]:
    """Yield what was read in one go, but nothing behind the first token together with it: that one goes ahead."""
    taken = 0
    while not call.has_begun and taken < len(batch):
        yield batch[taken : taken + 1]
        taken += 1
    if taken < len(batch):
        yield batch[taken:]


def _decode(batch: Sequence[bytes], decoder: Decoder) -> Exception | None:
    """Read a batch; return what is wrong with it, after what came before the fault has been read."""
    try:
        for payload in batch:
            decoder.take(payload)
    except (BadChunk, ChunkError) as failure:
        return failure
    return None


def _estimated(request: ModelRequest, reply: ReplyBuilder, calls: Sequence[ToolCall]) -> Usage:
    """Return a usage for servers that tell none."""
    written = sum(estimate_tokens(call.name + call.arguments_json.decode()) for call in calls)
    thought = estimate_tokens(reply.reasoning)
    return Usage(
        input_tokens=message_tokens(request.messages) + tool_tokens(request.tools),
        output_tokens=estimate_tokens(reply.text) + thought + written,
        reasoning_tokens=thought,
        estimated=True,
    )
