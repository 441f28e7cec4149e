"""What a scripted model does in one turn: the steps, and the shape in which a server of this kind would send them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any


class Reasoning(Enum):
    """Where a server puts the model's reasoning."""

    REASONING_CONTENT = "reasoning_content"
    REASONING = "reasoning"
    THINK_TAG = "think"


class CallFraming(Enum):
    """How a server sends a tool call."""

    FRAGMENTED = "fragmented"  # id and name first, then the arguments in fragments, as OpenAI does
    WHOLE = "whole"  # one delta
    NO_INDEX = "no index"  # whole, without an index
    NO_INDEX_FRAGMENTED = "no index, fragmented"  # the id repeated on every fragment instead
    NO_ID = "no id"  # fragments told apart by index only
    REPEATED_ID = "repeated id"  # id and name on every fragment
    SAME_ID = "same id"  # every call of the reply has the id `call_0`
    INDEX_ZERO = "index zero"  # whole calls, each with index 0
    CUMULATIVE = "cumulative"  # every delta repeats all arguments so far
    REPEATED_WHOLE = "repeated whole"  # the complete call is sent twice
    OBJECT = "object"  # arguments as a JSON object instead of a string
    ONE_CHUNK = "one chunk"  # all fragments of all calls in a single chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Answer text, one chunk per piece."""

    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Think:
    """Reasoning, one chunk per piece."""

    pieces: tuple[str, ...]
    form: Reasoning = Reasoning.REASONING_CONTENT


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """One tool call; `arguments` is the text the model writes, which need not be JSON."""

    name: str
    arguments: str
    call_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Tool calls of one reply, all in the same framing."""

    calls: tuple[ScriptedCall, ...]
    framing: CallFraming = CallFraming.FRAGMENTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """Bytes put into the body as they are: garbage, comments, half an event."""

    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Says nothing until the event is set; an event that nobody sets is a stall."""

    event: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Sets the event: the test learns that the server came this far."""

    event: asyncio.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Waits a time; for paced streams of measurements, never to synchronise a test."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Breaks the connection."""


Step = Say | Think | Calls | Raw | Wait | Reach | Pause | Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Shape of the stream. `slice_bytes` sends the body in pieces of that many bytes, so that UTF-8 is split."""

    newline: bytes = b"\n"
    comments: bool = False
    slice_bytes: int = 0
    role_chunk: bool = True
    empty_chunks: bool = False
    finish_chunk: bool = True
    done: bool = True
    usage_chunk: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One reply. `usage` is (prompt, completion, cached, reasoning) tokens; `finish` empty means what fits."""

    steps: tuple[Step, ...] = ()
    usage: tuple[int, int, int, int] = (12, 5, 0, 0)
    finish: str = ""
    wire: Wire = field(default_factory=Wire)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    model: str = "scripted"
    response_id: str = ""

    @property
    def text(self) -> str:
        """The answer as a whole."""
        return "".join(piece for step in self.steps if isinstance(step, Say) for piece in step.pieces)

    @property
    def reasoning(self) -> str:
        """The reasoning as a whole."""
        return "".join(piece for step in self.steps if isinstance(step, Think) for piece in step.pieces)

    @property
    def calls(self) -> tuple[ScriptedCall, ...]:
        """All calls, in order."""
        return tuple(call for step in self.steps if isinstance(step, Calls) for call in step.calls)

    @property
    def finish_reason(self) -> str:
        """What was scripted, else what fits the content."""
        return self.finish or ("tool_calls" if self.calls else "stop")

    def on(self, wire: Wire) -> Turn:
        """Return the same turn in another shape."""
        return replace(self, wire=wire)


@dataclass(slots=True, kw_only=True)
class Request:
    """A request the server received. `gone` is set when the client left before the reply was complete.

    `received_at` and `served_at` (0 until then) are readings of `time.perf_counter`, for measurements.
    """

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    served: asyncio.Event = field(default_factory=asyncio.Event)
    received_at: float = field(default_factory=time.perf_counter)
    served_at: float = 0.0

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Messages of a Chat Completions request."""
        return list(self.body["messages"])

    @property
    def last_text(self) -> str:
        """Text of the last message, parts joined."""
        content = self.messages[-1]["content"]
        if isinstance(content, str):
            return content
        return "".join(part.get("text", "") for part in content or ())


# A turn, or a function that makes it from the request it answers.
Script = Turn | Callable[[Request], Turn]


def say(*pieces: str, **turn: Any) -> Turn:
    """Return a turn of plain text."""
    return Turn(steps=(Say(pieces=pieces),), **turn)


def call(name: str, arguments: str, framing: CallFraming = CallFraming.FRAGMENTED, **turn: Any) -> Turn:
    """Return a turn of one tool call."""
    step = Calls(calls=(ScriptedCall(name=name, arguments=arguments, call_id="call_a"),), framing=framing)
    return Turn(steps=(step,), **turn)


def calls(*wanted: tuple[str, str], framing: CallFraming = CallFraming.FRAGMENTED, **turn: Any) -> Turn:
    """Return a turn of several tool calls, each (name, arguments)."""
    made = tuple(
        ScriptedCall(name=name, arguments=arguments, call_id=f"call_{chr(ord('a') + number)}")
        for number, (name, arguments) in enumerate(wanted)
    )
    return Turn(steps=(Calls(calls=made, framing=framing),), **turn)


def fail(status: int, message: str = "scripted failure", retry_after: str = "", code: str = "") -> Turn:
    """Return a turn that is an HTTP error."""
    headers = {"retry-after": retry_after} if retry_after else {}
    return Turn(status=status, headers=headers, error={"message": message, "type": "scripted", "code": code or None})
