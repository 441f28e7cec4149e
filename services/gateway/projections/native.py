"""The native wire: each RunEvent as one server-sent event, `id:` its sequence, `event:` its kind, `data:` its JSON."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from proctor.orchestrator.v1 import events_pb2 as pb
from services.gateway.protojson import timestamp_text, to_json_bytes

TERMINAL = frozenset({"run_completed", "run_failed", "run_cancelled"})


def kind_of(event: pb.RunEvent) -> str:
    """Return the event's kind in snake_case, empty for a kind this version does not know."""
    return event.WhichOneof("event") or ""


def is_terminal(event: pb.RunEvent) -> bool:
    """Whether nothing follows this event."""
    return kind_of(event) in TERMINAL


def encode(event: pb.RunEvent) -> bytes:
    """Return the event's JSON. Text deltas, the bulk of a stream, take a direct path with an equal result."""
    match event.WhichOneof("event"):
        case "answer_delta":
            return _encode_text(event, "answer_delta", event.answer_delta)
        case "thinking_delta":
            return _encode_text(event, "thinking_delta", event.thinking_delta)
        case _:
            return to_json_bytes(event)


def frame(event: pb.RunEvent) -> bytes:
    """Return the event as one server-sent event."""
    kind = kind_of(event) or "unknown"
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.sequence, kind.encode(), encode(event))


def frames(events: Iterable[pb.RunEvent]) -> bytes:
    """Return a batch of events as one chunk of the stream."""
    return b"".join(map(frame, events))


def _encode_text(event: pb.RunEvent, kind: str, delta: pb.AnswerDelta | pb.ThinkingDelta) -> bytes:
    value: dict[str, object] = {
        "run_id": event.run_id,
        "sequence": event.sequence,
        "attempt": event.attempt,
        "step_id": event.step_id,
    }
    if event.HasField("at"):
        value["at"] = timestamp_text(event.at)
    value[kind] = {"text": delta.text, "model_call_id": delta.model_call_id}
    return orjson.dumps(value)
