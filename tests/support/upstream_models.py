"""Models under test over the scripted server: requests, adapters, timers that a test moves, what a stream told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai

from services.chassis.clock import Clock, SystemClock
from services.chassis.settings import Secret
from services.orchestrator.domain.messages import Message, Role, ToolSpec, text_message
from services.orchestrator.models.chat_dialect import ChatDialect
from services.orchestrator.models.coalescing import Coalescer
from services.orchestrator.models.layers import Events, TimedModel
from services.orchestrator.models.limits import Later, Limits, Timer, on_the_loop
from services.orchestrator.models.model_settings import Api, ModelSettings
from services.orchestrator.models.openai_model import Dialect, OpenAIModel
from services.orchestrator.models.ports import (
    CallPiece,
    ModelEvent,
    ModelReply,
    ModelRequest,
    Purpose,
    TextPiece,
    ThinkingPiece,
)
from services.orchestrator.models.posting import Poster
from services.orchestrator.models.timing import CallClock
from services.orchestrator.models.transport import ModelTransport
from tests.support.clock import FakeClock

SEARCH = ToolSpec(
    name="search",
    description="Search the documents.",
    parameters_json=b'{"properties":{"query":{"type":"string"}},"required":["query"],"type":"object"}',
)
CLOCK_TOOL = ToolSpec(name="current_time", description="Tell the time.", parameters_json=b'{"type":"object"}')


def ask(text: str = "What is new?", **fields: Any) -> ModelRequest:
    """Return a request with one user message; any field may be given."""
    fields.setdefault("messages", (text_message(Role.USER, text),))
    fields.setdefault("model", "m")
    fields.setdefault("purpose", Purpose.ANSWER)
    return ModelRequest(call_id="mc1", **fields)


def system(text: str) -> Message:
    return text_message(Role.SYSTEM, text)


def user(text: str) -> Message:
    return text_message(Role.USER, text)


@dataclass(slots=True, kw_only=True)
class Heard:
    """What a stream told, in order."""

    events: list[ModelEvent] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextPiece))

    @property
    def thinking(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ThinkingPiece))

    @property
    def fragments(self) -> dict[str, str]:
        """Argument text by call id, as it was streamed."""
        out: dict[str, str] = {}
        for event in self.events:
            if isinstance(event, CallPiece):
                out[event.call_id] = out.get(event.call_id, "") + event.arguments_fragment
        return out

    @property
    def reply(self) -> ModelReply:
        """The reply, which is the last event and the only one of its kind."""
        replies = [event for event in self.events if isinstance(event, ModelReply)]
        assert len(replies) == 1
        assert self.events[-1] is replies[0]
        return replies[0]

    def of(self, kind: type[ModelEvent]) -> list[ModelEvent]:
        return [event for event in self.events if isinstance(event, kind)]

    def arguments(self) -> list[Any]:
        """Arguments of the reply's calls, decoded."""
        return [json.loads(call.arguments_json) for call in self.reply.tool_calls]


async def hear(events: Events, heard: Heard | None = None) -> Heard:
    """Return all that `events` tells; `heard` keeps what came before a failure."""
    heard = heard or Heard()
    async for event in events:
        heard.events.append(event)
    return heard


@dataclass(slots=True, kw_only=True)
class FakeTimer:
    """A timer that fires when the test lets time pass."""

    due: float
    action: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeTimers:
    """Timers on a FakeClock: `advance` lets time pass and fires what is due, in order."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._timers: list[FakeTimer] = []

    def later(self, delay: float, action: Callable[[], None]) -> Timer:
        timer = FakeTimer(due=self._clock.monotonic() + delay, action=action)
        self._timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        while due := sorted((t for t in self._timers if not t.cancelled and t.due <= end), key=lambda t: t.due):
            timer = due[0]
            self._timers.remove(timer)
            self._clock.advance(max(0.0, timer.due - self._clock.monotonic()))
            timer.action()
        self._clock.advance(end - self._clock.monotonic())

    @property
    def pending(self) -> int:
        return sum(1 for timer in self._timers if not timer.cancelled)


def settings_for(base_url: str, **fields: Any) -> ModelSettings:
    """Return the settings of a model `m` at `base_url`."""
    fields.setdefault("model_id", "m")
    fields.setdefault("upstream_name", "scripted")
    return ModelSettings(base_url=base_url, api_key=Secret("key"), api=fields.pop("api", Api.CHAT), **fields)


@asynccontextmanager
async def adapter(
    base_url: str,
    *,
    clock: Clock | None = None,
    limits: Limits | None = None,
    later: Later = on_the_loop,
    dialect: Dialect | None = None,
    transport: ModelTransport | None = None,
    coalescer: Coalescer | None = None,
    **fields: Any,
) -> AsyncIterator[OpenAIModel]:
    """An adapter to the server at `base_url`, closed at the end."""
    transport = transport or ModelTransport()
    http = httpx2.AsyncClient(transport=transport, timeout=None)
    settings = settings_for(base_url, **fields)
    client = openai.AsyncOpenAI(base_url=base_url, api_key="key", max_retries=0, http_client=http)
    try:
        spoken = dialect or ChatDialect()
        poster = Poster(client, transport, spoken.path)
        time = clock or SystemClock()
        yield OpenAIModel(settings, spoken, poster, limits or Limits(), time, coalescer or Coalescer(time), later)
    finally:
        await client.close()


async def converse(model: TimedModel, request: ModelRequest | None = None, clock: Clock | None = None) -> Heard:
    """Return what the model tells of one call."""
    return await hear(model.stream(request or ask(), CallClock(clock or SystemClock())))
