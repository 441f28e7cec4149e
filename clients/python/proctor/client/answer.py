"""What a run has given so far, folded from its events."""

from __future__ import annotations

from dataclasses import dataclass, replace

from proctor.agent.v1.agent_pb2 import Citation, Usage
from proctor.orchestrator.v1.events_pb2 import PendingCall, RunEvent

TERMINAL = frozenset({"run_completed", "run_failed", "run_cancelled"})


def kind_of(event: RunEvent) -> str:
    """Return the event's kind in snake_case."""
    return event.WhichOneof("event") or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a run. `state` is running, paused, completed, failed or cancelled; then `text` is final."""

    run_id: str = ""
    conversation_id: str = ""
    state: str = "running"
    text: str = ""
    value_json: bytes = b""
    citations: tuple[Citation, ...] = ()
    usage: Usage | None = None
    pending: tuple[PendingCall, ...] = ()
    failure: str = ""
    message: str = ""
    finish_reason: str = ""
    # Streamed text by model call, so that a withdrawn call can be taken out again.
    pieces: tuple[tuple[str, str], ...] = ()


def fold(answer: Answer, event: RunEvent) -> Answer:
    """Return the answer after `event`."""
    match kind_of(event):
        case "run_started":
            started = event.run_started
            return replace(answer, run_id=event.run_id, conversation_id=started.conversation_id)
        case "answer_delta" if not event.step_id:
            return _with_pieces(answer, (*answer.pieces, (event.answer_delta.model_call_id, event.answer_delta.text)))
        case "answer_retracted":
            gone = event.answer_retracted.model_call_id
            return _with_pieces(answer, tuple(piece for piece in answer.pieces if piece[0] != gone))
        case "run_paused":
            return replace(answer, state="paused", pending=tuple(event.run_paused.pending))
        case "run_resumed":
            return replace(answer, state="running", pending=())
        case "run_completed":
            done = event.run_completed
            return replace(
                answer,
                state="completed",
                text=done.text,
                value_json=done.value_json,
                citations=tuple(done.citations),
                usage=done.usage,
                finish_reason=done.finish_reason,
            )
        case "run_failed":
            failed = event.run_failed
            return replace(
                answer,
                state="failed",
                text=failed.partial_text,
                citations=tuple(failed.citations),
                usage=failed.usage,
                failure=failed.reason,
                message=failed.message,
            )
        case "run_cancelled":
            stopped = event.run_cancelled
            citations = tuple(stopped.citations)
            return replace(
                answer, state="cancelled", text=stopped.partial_text, citations=citations, usage=stopped.usage
            )
        case _:
            return answer


def _with_pieces(answer: Answer, pieces: tuple[tuple[str, str], ...]) -> Answer:
    """Keep one piece for each run of deltas of a model call, so that long answers stay small."""
    merged: list[tuple[str, str]] = []
    for call, text in pieces:
        if merged and merged[-1][0] == call:
            merged[-1] = (call, merged[-1][1] + text)
        else:
            merged.append((call, text))
    return replace(answer, pieces=tuple(merged), text="\n\n".join(text for _, text in merged))
