"""RunEvent on the wire: encoding with a direct path for the hot deltas, decoding, merging, and framing.

The payload of an event is made once, here, and passed as bytes to the store and to every stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from google.protobuf.message import Message as ProtoMessage

from proctor.orchestrator.v1 import events_pb2
from services.orchestrator.codec_reflect import from_pb, since_epoch, timestamp, to_pb
from services.orchestrator.domain import events
from services.orchestrator.domain.events import AnswerDelta, Event, StampedEvent, ThinkingDelta

_RUN_EVENT: Any = events_pb2.RunEvent.DESCRIPTOR
_ARMS: dict[str, Any] = {field.message_type.name: field for field in _RUN_EVENT.oneofs_by_name["event"].fields}
_CLASSES: dict[str, type[Event]] = {
    field.name: getattr(events, name) for name, field in _ARMS.items() if hasattr(events, name)
}
_MESSAGES: dict[str, type[ProtoMessage]] = {name: getattr(events_pb2, name) for name in _ARMS}

# Field numbers of RunEvent's oneof, stored beside each payload so that readers need not decode it.
THINKING_DELTA, ANSWER_DELTA, TOOL_CALL_DELTA, TOOL_CALL_PROGRESS = 13, 14, 16, 19
DELTA_KINDS = frozenset((THINKING_DELTA, ANSWER_DELTA, TOOL_CALL_DELTA, TOOL_CALL_PROGRESS))
RUN_PAUSED = 34
TERMINAL_KINDS = frozenset((36, 37, 38))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A decoded RunEvent. `event` is None for a kind that this version does not know."""

    run_id: str
    sequence: int
    at: datetime
    attempt: int
    step_id: str
    event: Event | None


def kind_of(event: Event) -> int:
    """Return the field number of the event's arm in RunEvent."""
    number: int = _ARMS[type(event).__name__].number
    return number


class EventEncoder:
    """Encodes the events of one run by one owner."""

    def __init__(self, run_id: str, attempt: int) -> None:
        self._run_id = run_id
        self._attempt = attempt
        self._head = _bytes_field(0x0A, run_id.encode()) + b"\x10"
        self._tail = b"\x20" + _varint(attempt) if attempt else b""

    def encode(self, event: Event, *, sequence: int, at: datetime, step_id: str = "") -> bytes:
        """Return the serialized RunEvent; `at` is aware."""
        if isinstance(event, AnswerDelta):
            return self._encode_text(b"\x72", event, sequence, at, step_id)
        if isinstance(event, ThinkingDelta):
            return self._encode_text(b"\x6a", event, sequence, at, step_id)
        name = type(event).__name__
        message = events_pb2.RunEvent(
            run_id=self._run_id, sequence=sequence, at=timestamp(at), attempt=self._attempt, step_id=step_id
        )
        getattr(message, _ARMS[name].name).MergeFrom(to_pb(event, _MESSAGES[name]))
        # An arm whose fields are all empty must still be present.
        getattr(message, _ARMS[name].name).SetInParent()
        return message.SerializeToString()

    def _encode_text(
        self, tag: bytes, event: AnswerDelta | ThinkingDelta, sequence: int, at: datetime, step_id: str
    ) -> bytes:
        """Write the wire form directly: these events are most of every run. Field order is the serializer's own."""
        seconds, nanos = since_epoch(at)
        stamp = b"\x08" + _varint(seconds) + (b"\x10" + _varint(nanos) if nanos else b"")
        body = b""
        if event.text:
            body = _bytes_field(0x0A, event.text.encode())
        if event.model_call_id:
            body += _bytes_field(0x12, event.model_call_id.encode())
        step = _bytes_field(0x2A, step_id.encode()) if step_id else b""
        return b"".join(
            (
                self._head,
                _varint(sequence),
                b"\x1a",
                _varint(len(stamp)),
                stamp,
                self._tail,
                step,
                tag,
                _varint(len(body)),
                body,
            )
        )


def decode(payload: bytes) -> Recorded:
    """Return the event of a payload; raise `google.protobuf.message.DecodeError` when it is damaged."""
    message = events_pb2.RunEvent.FromString(payload)
    arm = message.WhichOneof("event")
    event = from_pb(getattr(message, arm), _CLASSES[arm]) if arm in _CLASSES else None
    return Recorded(
        run_id=message.run_id,
        sequence=message.sequence,
        at=message.at.ToDatetime(tzinfo=UTC),
        attempt=message.attempt,
        step_id=message.step_id,
        event=event,
    )


def stamped(sequence: int, kind: int, payload: bytes) -> StampedEvent:
    """Return a stored row as the event that readers get."""
    return StampedEvent(
        sequence=sequence,
        payload=payload,
        kind=kind,
        terminal=kind in TERMINAL_KINDS,
        pause=kind == RUN_PAUSED,
    )


def frame(batch: Iterable[StampedEvent]) -> bytes:
    """Return the payloads as one serialized StartRunResponse, or WatchRunResponse, or ResumeRunResponse."""
    return b"".join(part for event in batch for part in (b"\x0a", _varint(len(event.payload)), event.payload))


def merge_deltas(batch: Sequence[StampedEvent]) -> tuple[StampedEvent, ...]:
    """Join neighbouring deltas of the same text; the joined event carries the last one's sequence and time.

    A reader who has seen the joined event and resumes after its sequence misses nothing.
    """
    merged: list[StampedEvent] = []
    group: list[StampedEvent] = []
    group_key: tuple[object, ...] | None = None
    for event in batch:
        key = None
        if event.kind in DELTA_KINDS:
            key = _merge_key(events_pb2.RunEvent.FromString(event.payload))
        if key is None or key != group_key:
            merged.extend(_joined(group))
            group = []
        group.append(event)
        group_key = key
    merged.extend(_joined(group))
    return tuple(merged)


def _merge_key(message: events_pb2.RunEvent) -> tuple[object, ...]:
    """Return what two deltas must share to be one."""
    arm = message.WhichOneof("event")
    match arm:
        case "thinking_delta" | "answer_delta":
            which: tuple[object, ...] = (getattr(message, arm).model_call_id,)
        case "tool_call_delta":
            which = (message.tool_call_delta.call_id, message.tool_call_delta.model_call_id)
        case _:
            which = (message.tool_call_progress.call_id, message.tool_call_progress.stream)
    return (arm, message.attempt, message.step_id, *which)


def _joined(group: Sequence[StampedEvent]) -> Sequence[StampedEvent]:
    if len(group) < 2:
        return group
    messages = [events_pb2.RunEvent.FromString(event.payload) for event in group]
    last = messages[-1]
    match last.WhichOneof("event"):
        case "thinking_delta":
            last.thinking_delta.text = "".join(m.thinking_delta.text for m in messages)
        case "answer_delta":
            last.answer_delta.text = "".join(m.answer_delta.text for m in messages)
        case "tool_call_delta":
            last.tool_call_delta.name = next((m.tool_call_delta.name for m in messages if m.tool_call_delta.name), "")
            last.tool_call_delta.arguments_fragment = "".join(m.tool_call_delta.arguments_fragment for m in messages)
        case _:
            fractions = [m.tool_call_progress for m in messages if m.tool_call_progress.HasField("fraction")]
            if fractions:
                last.tool_call_progress.fraction = fractions[-1].fraction
            last.tool_call_progress.text = "".join(m.tool_call_progress.text for m in messages)
    return (stamped(group[-1].sequence, group[-1].kind, last.SerializeToString()),)


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes_field(tag: int, value: bytes) -> bytes:
    return bytes((tag,)) + _varint(len(value)) + value
