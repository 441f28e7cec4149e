"""AG-UI (protocol 1.0) as a fold over a run's events.

Thread and run ids are the client's. A pause ends the AG-UI run with the outcome `interrupt`; the next one answers its
interrupts by `resume`. Calls of the caller's tools stay pending and come back as messages of role tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proctor.orchestrator.v1 import events_pb2 as pb
from services.gateway import pauses
from services.gateway.projections import sources
from services.gateway.protojson import embedded, timestamp_text, to_json
from services.gateway.stepping import changed

Frame = dict[str, Any]
PROTOCOL_VERSION = "1.0"
_TEXT, _REASONING = "TEXT_MESSAGE", "REASONING_MESSAGE"
# Events that have no kind of their own on this wire, by the name of the custom event they become.
_CUSTOM = frozenset(
    {"stage_changed", "route_decided", "evidence_added", "artifact_created", "plan_made", "notice", "history_compacted"}
)


# Without slots, for `changed`.
@dataclass(frozen=True, kw_only=True)
class State:
    """Where a run stands. `open` is the kind of message being written, `proposed` calls without a result yet."""

    thread_id: str
    run_id: str
    proctor_run: str = ""
    open: str = ""
    part: int = 0
    text: str = ""
    model_call_id: str = ""
    proposed: tuple[str, ...] = ()
    asked: Mapping[str, pb.RunEvent] = field(default_factory=dict)
    # Names of the steps at work, by step id.
    steps: Mapping[str, str] = field(default_factory=dict)
    ended: bool = False


def fold(state: State, event: pb.RunEvent) -> tuple[State, list[Frame]]:
    """Return the state after `event` and the events it makes. Nothing follows once the state has ended."""
    if state.ended:
        return state, []
    frames: list[Frame] = []
    if not state.proctor_run:
        state = changed(state, proctor_run=event.run_id)
        ids = {"threadId": state.thread_id, "runId": state.run_id, "protocolVersion": PROTOCOL_VERSION}
        frames.append({"type": "RUN_STARTED", **ids, "metadata": {"proctor": {"run_id": event.run_id}}})
    state, more = _fold_kind(state, event)
    return state, frames + more


def _fold_kind(state: State, event: pb.RunEvent) -> tuple[State, list[Frame]]:
    kind = event.WhichOneof("event") or ""
    match kind:
        case "answer_delta" if not event.step_id:
            return _write(state, _TEXT, event.answer_delta.text, event.answer_delta.model_call_id)
        case "thinking_delta" if not event.step_id:
            return _write(state, _REASONING, event.thinking_delta.text, event.thinking_delta.model_call_id)
        case "tool_call_proposed":
            return _proposed(state, event.tool_call_proposed)
        case "tool_call_finished":
            return _finished(state, event.tool_call_finished)
        case "approval_requested":
            return changed(state, asked={**state.asked, event.approval_requested.call_id: event}), []
        case "questions_asked":
            return changed(state, asked={**state.asked, event.questions_asked.call_id: event}), []
        case "step_started":
            return _step_started(state, event.step_started)
        case "step_finished":
            return _step_finished(state, event.step_finished.step_id)
        case "stage_changed" if event.step_id:
            return state, []  # steps side by side: their stages would alternate
        case _ if kind in _CUSTOM:
            return state, [{"type": "CUSTOM", "name": f"proctor.{kind}", "value": to_json(getattr(event, kind))}]
        case _:
            return _fold_end(state, event)


def _fold_end(state: State, event: pb.RunEvent) -> tuple[State, list[Frame]]:
    match event.WhichOneof("event"):
        case "run_paused":
            interrupts = [_interrupt(state, pending) for pending in event.run_paused.pending]
            return _end(state, {"type": "interrupt", "interrupts": interrupts})
        case "run_completed":
            return _completed(state, event.run_completed)
        case "run_cancelled":
            return _end(state, {"type": "cancelled"})
        case "run_failed":
            return _failed(state, event.run_failed.reason, event.run_failed.message)
        case "answer_retracted" if not event.step_id:
            return _failed(state, "MODEL_STREAM_BROKEN", event.answer_retracted.reason)
        case _:
            return state, []


def _write(state: State, kind: str, text: str, model_call_id: str) -> tuple[State, list[Frame]]:
    if not text:  # the wire has no empty deltas
        return state, []
    frames: list[Frame] = []
    if state.open != kind or state.model_call_id != model_call_id:
        frames += _closing(state)
        state = changed(state, open=kind, part=state.part + 1, text="", model_call_id=model_call_id)
        message = {"messageId": _message_id(state)}
        if kind == _REASONING:
            frames.append({"type": "REASONING_START", **message})
        role = "assistant" if kind == _TEXT else "reasoning"
        frames.append({"type": f"{kind}_START", **message, "role": role})
    frames.append({"type": f"{kind}_CONTENT", "messageId": _message_id(state), "delta": text})
    return changed(state, text=state.text + text), frames


def _closing(state: State) -> list[Frame]:
    if not state.open:
        return []
    message = {"messageId": _message_id(state)}
    frames: list[Frame] = [{"type": f"{state.open}_END", **message}]
    if state.open == _REASONING:
        frames.append({"type": "REASONING_END", **message})
    return frames


def _proposed(state: State, proposed: pb.ToolCallProposed) -> tuple[State, list[Frame]]:
    call = proposed.call
    frames = _closing(state)
    frames.append({"type": "TOOL_CALL_START", "toolCallId": call.call_id, "toolCallName": call.name})
    arguments = call.arguments_json.decode() or call.malformed_arguments
    if arguments:
        frames.append({"type": "TOOL_CALL_ARGS", "toolCallId": call.call_id, "delta": arguments})
    frames.append({"type": "TOOL_CALL_END", "toolCallId": call.call_id})
    return changed(state, open="", proposed=(*state.proposed, call.call_id)), frames


def _finished(state: State, finished: pb.ToolCallFinished) -> tuple[State, list[Frame]]:
    result = {"messageId": f"result_{finished.call_id}", "toolCallId": finished.call_id, "content": finished.preview}
    left = tuple(call_id for call_id in state.proposed if call_id != finished.call_id)
    return changed(state, proposed=left), [{"type": "TOOL_CALL_RESULT", **result, "role": "tool"}]


def _step_started(state: State, started: pb.StepStarted) -> tuple[State, list[Frame]]:
    """Steps are known by name on this wire, so two at work never share one."""
    if started.step_id in state.steps:
        return state, []
    name = started.title or started.step_id
    if name in state.steps.values():
        name = f"{name} ({started.step_id})"
    return changed(state, steps={**state.steps, started.step_id: name}), [{"type": "STEP_STARTED", "stepName": name}]


def _step_finished(state: State, step_id: str) -> tuple[State, list[Frame]]:
    """A step that began before an interrupt was told as finished there."""
    if step_id not in state.steps:
        return state, []
    left = {known: name for known, name in state.steps.items() if known != step_id}
    return changed(state, steps=left), [{"type": "STEP_FINISHED", "stepName": state.steps[step_id]}]


def _completed(state: State, completed: pb.RunCompleted) -> tuple[State, list[Frame]]:
    frames: list[Frame] = []
    written = state.text if state.open == _TEXT else ""
    if completed.text.startswith(written):
        state, frames = _write(state, _TEXT, completed.text[len(written) :], state.model_call_id)
    outcome: Frame = {"type": "success"}
    if completed.finish_reason == "tool_calls":
        outcome["pendingToolCallIds"] = list(state.proposed)
    result: Frame = {"sources": [sources.source(citation) for citation in completed.citations]}
    if completed.value_json:
        result["value"] = embedded(completed.value_json)
    state, last = _end(state, outcome, result)
    return state, frames + last


def _failed(state: State, reason: str, message: str) -> tuple[State, list[Frame]]:
    frames = [*_closing(state), {"type": "RUN_ERROR", "message": message, "code": reason}]
    return changed(state, ended=True, open=""), frames


def _end(state: State, outcome: Frame, result: Frame | None = None) -> tuple[State, list[Frame]]:
    last: Frame = {"type": "RUN_FINISHED", "threadId": state.thread_id, "runId": state.run_id, "outcome": outcome}
    if result is not None:
        last["result"] = result
    # A run with a step at work is not finished to this wire, whatever it waits for.
    steps = [{"type": "STEP_FINISHED", "stepName": name} for name in state.steps.values()]
    return changed(state, ended=True, open="", steps={}), [*_closing(state), *steps, last]


def _interrupt(state: State, pending: pb.PendingCall) -> Frame:
    """Return what is asked; its id says which call of which run the answer is for."""
    asked = state.asked.get(pending.call_id)
    pause_id, call = pauses.as_function_call(state.proctor_run, pending, asked)
    frame: Frame = {"id": pause_id, "reason": call.name, "metadata": {"proctor": embedded(call.arguments_json)}}
    if pending.call_id in state.proposed:
        frame["toolCallId"] = pending.call_id
    if asked is not None and asked.HasField("approval_requested"):
        frame["message"] = asked.approval_requested.reason
        frame["expiresAt"] = timestamp_text(asked.approval_requested.deadline)
    return frame


def _message_id(state: State) -> str:
    return f"{state.proctor_run}_{state.run_id}_{state.part}"
