"""The UI message stream of Vercel's AI SDK (v1) as a fold over a run's events.

One run is one assistant message, whose id is the run's; a leg after a decision goes on with the same message. Tools are
the suite's own, so they are told as executed by the provider; a pending approval is a `tool-approval-request`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import events_pb2 as pb
from services.gateway import pauses
from services.gateway.projections import sources
from services.gateway.protojson import embedded, to_json
from services.gateway.stepping import changed

Frame = dict[str, Any]
_FINISH = {"stop": "stop", "length": "length", "content_filter": "content-filter", "tool_calls": "tool-calls"}


# Without slots, for `changed`.
@dataclass(frozen=True, kw_only=True)
class State:
    """Where a message stands. `open` is text or reasoning while a part is written, `text` what it holds."""

    # Whether a pause is passed over: for a stream that is taken up again from the first event.
    through_pauses: bool = False
    run_id: str = ""
    open: str = ""
    part: int = 0
    text: str = ""
    model_call_id: str = ""
    # Steps so far by id, as their data part tells them.
    steps: Mapping[str, Frame] = field(default_factory=dict)
    ended: bool = False


def fold(state: State, event: pb.RunEvent) -> tuple[State, list[Frame]]:
    """Return the state after `event` and the chunks it makes. Nothing follows once the state has ended."""
    if state.ended:
        return state, []
    frames: list[Frame] = []
    if not state.run_id:
        state = changed(state, run_id=event.run_id)
        metadata = {"run_id": event.run_id}
        frames += [{"type": "start", "messageId": message_id(event.run_id), "messageMetadata": metadata}]
        frames += [{"type": "start-step"}]
    state, more = _fold_kind(state, event)
    return state, frames + more


def message_id(run_id: str) -> str:
    """Return the id of a run's message."""
    return f"msg_{run_id}"


def finish(state: State) -> list[Frame]:
    """Return the chunks that end a message whose events stopped at a pause."""
    return [] if state.ended or not state.run_id else [*_closing(state), {"type": "finish-step"}, {"type": "finish"}]


def _fold_kind(state: State, event: pb.RunEvent) -> tuple[State, list[Frame]]:
    match event.WhichOneof("event"):
        case "answer_delta" if not event.step_id:
            return _write(state, "text", event.answer_delta.text, event.answer_delta.model_call_id)
        case "thinking_delta" if not event.step_id:
            return _write(state, "reasoning", event.thinking_delta.text, event.thinking_delta.model_call_id)
        case "step_started":
            begun = event.step_started
            told = {"title": begun.title, "kind": begun.kind, "state": "running"}
            return _step(state, begun.step_id, told)
        case "step_finished":
            over = event.step_finished
            told = {"state": "failed" if over.failed else "completed", "summary": over.summary}
            return _step(state, over.step_id, {**state.steps.get(over.step_id, {}), **told})
        case "run_paused":
            return (
                (state, []) if state.through_pauses else _end(state, {"type": "finish", "finishReason": "tool-calls"})
            )
        case "run_completed":
            return _completed(state, event.run_completed)
        case "run_failed":
            return _failed(state, event.run_failed.message)
        case "answer_retracted" if not event.step_id:
            return _failed(state, event.answer_retracted.reason)
        case "run_cancelled":
            return _end(state, {"type": "abort", "reason": f"stopped by {event.run_cancelled.cancelled_by}"})
        case _:
            return state, _part_of(event)


def _part_of(event: pb.RunEvent) -> list[Frame]:
    """Return the chunks of events that neither write nor end."""
    match event.WhichOneof("event"):
        case "stage_changed" if not event.step_id:
            stage = pb.Stage.Name(event.stage_changed.stage).removeprefix("STAGE_").lower()
            data = {"stage": stage, "text": event.stage_changed.text}
            return [{"type": "data-stage", "data": data, "transient": True}]
        case "route_decided":
            return [{"type": "data-route", "data": to_json(event.route_decided)}]
        case "plan_made":
            return [{"type": "data-plan", "data": to_json(event.plan_made)}]
        case "notice":
            return [{"type": "data-notice", "data": {"code": event.notice.code, "text": event.notice.text}}]
        case "tool_call_proposed":
            return [_tool_input(event.tool_call_proposed)]
        case "approval_requested":
            return [_approval(event.run_id, event.approval_requested)]
        case "tool_call_finished":
            return [_tool_output(event.tool_call_finished)]
        case "evidence_added":
            return [_source(event.evidence_added.evidence)]
        case "artifact_created":
            artifact = event.artifact_created.artifact
            url = f"/v1/artifacts/{artifact.artifact_id}"
            return [{"type": "file", "url": url, "mediaType": artifact.media_type}]
        case _:
            return []


def _write(state: State, kind: str, text: str, model_call_id: str) -> tuple[State, list[Frame]]:
    frames: list[Frame] = []
    if state.open != kind or state.model_call_id != model_call_id:
        frames += _closing(state)
        state = changed(state, open=kind, part=state.part + 1, text="", model_call_id=model_call_id)
        frames.append({"type": f"{kind}-start", "id": _part_id(state)})
    frames.append({"type": f"{kind}-delta", "id": _part_id(state), "delta": text})
    return changed(state, text=state.text + text), frames


def _completed(state: State, completed: pb.RunCompleted) -> tuple[State, list[Frame]]:
    frames: list[Frame] = []
    written = state.text if state.open == "text" else ""
    if completed.text.startswith(written) and completed.text != written:
        state, frames = _write(state, "text", completed.text[len(written) :], state.model_call_id)
    metadata = {
        "run_id": state.run_id,
        "sources": [sources.source(citation) for citation in completed.citations],
        "usage": {"input_tokens": completed.usage.input_tokens, "output_tokens": completed.usage.output_tokens},
    }
    reason = _FINISH.get(completed.finish_reason, "other")
    state, last = _end(state, {"type": "finish", "finishReason": reason, "messageMetadata": metadata})
    return state, frames + last


def _step(state: State, step_id: str, told: Frame) -> tuple[State, list[Frame]]:
    """A later part of the same id takes the place of the earlier one in the message."""
    steps = {**state.steps, step_id: told}
    return changed(state, steps=steps), [{"type": "data-step", "id": step_id, "data": told}]


def _failed(state: State, text: str) -> tuple[State, list[Frame]]:
    frames = [*_closing(state), {"type": "error", "errorText": text}]
    return changed(state, ended=True, open=""), frames


def _end(state: State, last: Frame) -> tuple[State, list[Frame]]:
    frames = [*_closing(state), {"type": "finish-step"}, last]
    return changed(state, ended=True, open=""), frames


def _closing(state: State) -> list[Frame]:
    return [{"type": f"{state.open}-end", "id": _part_id(state)}] if state.open else []


def _part_id(state: State) -> str:
    return f"{state.run_id}_{state.part}_{state.open}"


def _tool_input(proposed: pb.ToolCallProposed) -> Frame:
    call = proposed.call
    shared = {"toolCallId": call.call_id, "toolName": call.name, "dynamic": True, "providerExecuted": True}
    if proposed.title:
        shared["title"] = proposed.title
    if call.malformed_arguments:
        error = "the arguments are not valid JSON"
        return {"type": "tool-input-error", **shared, "input": call.malformed_arguments, "errorText": error}
    return {"type": "tool-input-available", **shared, "input": embedded(call.arguments_json) or {}}


def _approval(run_id: str, asked: pb.ApprovalRequested) -> Frame:
    pause = pauses.PauseId(kind=pauses.APPROVAL, run_id=run_id, call_id=asked.call_id)
    facts = {"reason": asked.reason, "policy": asked.policy, "approval_id": asked.approval_id}
    frame = {"type": "tool-approval-request", "approvalId": str(pause), "toolCallId": asked.call_id}
    return {**frame, "approvalDescriptor": facts}


def _tool_output(finished: pb.ToolCallFinished) -> Frame:
    shared = {"toolCallId": finished.call_id, "dynamic": True, "providerExecuted": True}
    match finished.status:
        case agent_pb2.ToolStatus.TOOL_STATUS_COMPLETED:
            return {"type": "tool-output-available", **shared, "output": finished.preview}
        case agent_pb2.ToolStatus.TOOL_STATUS_DENIED:
            return {"type": "tool-output-denied", "toolCallId": finished.call_id}
        case _:
            return {"type": "tool-output-error", **shared, "errorText": finished.preview}


def _source(evidence: agent_pb2.Evidence) -> Frame:
    number = str(evidence.number)
    if evidence.url:
        return {"type": "source-url", "sourceId": number, "url": evidence.url, "title": evidence.title}
    title = f"{evidence.title} · {evidence.where}" if evidence.where else evidence.title
    return {"type": "source-document", "sourceId": number, "mediaType": "text/plain", "title": title}
