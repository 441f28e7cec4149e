"""Chat Completions as a fold over a run's events: chunks for a stream, and the whole completion from the last state.

Text is append-only on this wire, so runs behind it fail rather than withdraw text. Calls of the caller's tools end the
completion with finish_reason `tool_calls`; so do pending decisions, each as a call that the caller can answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import events_pb2 as pb
from services.gateway import pauses
from services.gateway.openai_errors import error_object, failed_run
from services.gateway.projections import progress, sources
from services.gateway.stepping import changed

Frame = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the request asks of the form of its answer."""

    model: str = ""
    include_usage: bool = False
    footnotes: bool = False
    # A form was asked for: text that comes before the final value would break it, so only the final text is sent.
    structured: bool = False
    wait_for_approvals: bool = False
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call for the caller to answer."""

    id: str
    name: str
    arguments: str


# Without slots, for `changed`.
@dataclass(frozen=True, kw_only=True)
class State:
    """Where a completion stands. `sent` is all text on the wire, `current` that of the newest model call."""

    options: Options
    id: str = ""
    created: int = 0
    model: str = ""
    run_id: str = ""
    conversation_id: str = ""
    sent: str = ""
    current: str = ""
    model_call_id: str = ""
    held: str = ""
    reasoning: str = ""
    # Titles of the steps that are planned, by id.
    planned: Mapping[str, str] = field(default_factory=dict)
    asked: tuple[pb.RunEvent, ...] = ()
    # Calls the model asked for that have no result yet; at the end these are the caller's to make.
    proposed: tuple[agent_pb2.ToolCall, ...] = ()
    numbers: frozenset[int] = frozenset()
    content: str = ""
    calls: tuple[Call, ...] = ()
    finish_reason: str = ""
    citations: tuple[agent_pb2.Citation, ...] = ()
    usage: agent_pb2.Usage | None = None
    error: Frame | None = None
    error_status: int = 200

    @property
    def ended(self) -> bool:
        """Whether the completion is over: finished, waiting for the caller, or failed."""
        return bool(self.finish_reason) or self.error is not None


def fold(state: State, event: pb.RunEvent) -> tuple[State, list[Frame]]:
    """Return the state after `event` and the chunks it makes. Nothing follows once the state has ended."""
    if state.ended:
        return state, []
    frames: list[Frame] = []
    if not state.id:
        state = _begin(state, event)
        frames.append(_chunk(state, {"role": "assistant", "content": ""}))
    state, more = _fold_kind(state, event)
    return state, frames + more


def _fold_kind(state: State, event: pb.RunEvent) -> tuple[State, list[Frame]]:
    match event.WhichOneof("event"):
        case "answer_delta" if not event.step_id and not state.options.structured:
            return _text(state, event.answer_delta.text, event.answer_delta.model_call_id)
        case "thinking_delta" if not event.step_id:
            return _reason(state, event.thinking_delta.text)
        case "evidence_added":
            return changed(state, numbers=state.numbers | {event.evidence_added.evidence.number}), []
        case "approval_requested" | "questions_asked" | "client_tool_requested":
            return changed(state, asked=(*state.asked, event)), []
        case "tool_call_proposed" if not event.step_id:
            return changed(state, proposed=(*state.proposed, event.tool_call_proposed.call)), []
        case "tool_call_finished":
            finished = event.tool_call_finished.call_id
            return changed(state, proposed=tuple(c for c in state.proposed if c.call_id != finished)), []
        case "plan_made":
            state = changed(state, planned=progress.titles(event.plan_made))
            return _reason(state, progress.plan_text(event.plan_made))
        case "step_finished":
            return _reason(state, progress.step_text(state.planned, event.step_finished))
        case _:
            return _fold_end(state, event)


def _fold_end(state: State, event: pb.RunEvent) -> tuple[State, list[Frame]]:
    match event.WhichOneof("event"):
        case "run_paused":
            return _paused(state, event.run_paused)
        case "answer_retracted" if not event.step_id:
            return _failed(state, "MODEL_STREAM_BROKEN", f"the answer was withdrawn: {event.answer_retracted.reason}")
        case "run_completed":
            return _completed(state, event.run_completed)
        case "run_failed":
            return _failed(state, event.run_failed.reason, event.run_failed.message)
        case "run_cancelled":
            return _failed(state, "CANCELLED", f"the run was cancelled by '{event.run_cancelled.cancelled_by}'")
        case _:
            return state, []


def unfinished(state: State) -> tuple[State, list[Frame]]:
    """Return the end of a completion whose events stopped before it ended: the run waits, and its caller no longer."""
    if state.ended:
        return state, []
    return _failed(state, "DEADLINE_EXCEEDED", f"run '{state.run_id}' still waits for a decision; look at it later")


def completion(state: State) -> Frame:
    """Return the whole completion of an ended state that has no error."""
    message: Frame = {"role": "assistant", "content": state.content or None, "refusal": None}
    if state.reasoning:
        message["reasoning_content"] = state.reasoning
    if state.calls:
        message["tool_calls"] = [_call_object(call) for call in state.calls]
    annotations = _annotations(state)
    if annotations:
        message["annotations"] = annotations
    return {
        "id": state.id,
        "object": "chat.completion",
        "created": state.created,
        "model": state.model,
        "choices": [{"index": 0, "message": message, "finish_reason": state.finish_reason, "logprobs": None}],
        "usage": _usage(state.usage or agent_pb2.Usage()),
        "proctor": _extension(state),
    }


def _begin(state: State, event: pb.RunEvent) -> State:
    """Fix id, time and model. A completion that continues a paused run is another one than the one before."""
    started = event.WhichOneof("event") == "run_started"
    suffix = "" if started else f"-{event.sequence}"
    return changed(
        state,
        id=f"chatcmpl-{event.run_id}{suffix}",
        created=event.at.seconds,
        run_id=event.run_id,
        model=(event.run_started.model if started else "") or state.options.model,
        conversation_id=event.run_started.conversation_id if started else "",
    )


def _reason(state: State, thought: str) -> tuple[State, list[Frame]]:
    if not thought:
        return state, []
    return changed(state, reasoning=state.reasoning + thought), [_chunk(state, {"reasoning_content": thought})]


def _text(state: State, text: str, model_call_id: str) -> tuple[State, list[Frame]]:
    """Send text; the text of a later model call begins a new paragraph."""
    if model_call_id != state.model_call_id:
        gap = "\n\n" if state.sent and not state.sent.endswith("\n") else ""
        state = changed(state, model_call_id=model_call_id, current="", sent=state.sent + gap)
    else:
        gap = ""
    state = changed(state, sent=state.sent + text, current=state.current + text)
    shown = gap + text
    if state.options.footnotes:
        ready, held = sources.split_open_mark(state.held + shown)
        shown = sources.as_footnote_marks(ready, state.numbers)
        state = changed(state, held=held)
    return state, [_chunk(state, {"content": shown})] if shown else []


def _paused(state: State, paused: pb.RunPaused) -> tuple[State, list[Frame]]:
    if state.options.wait_for_approvals:
        return state, []
    asked = {_call_id(event): event for event in state.asked}
    calls: list[Call] = []
    for pending in paused.pending:
        call_id, call = pauses.as_function_call(state.run_id, pending, asked.get(pending.call_id))
        calls.append(Call(id=call_id, name=call.name, arguments=call.arguments_json.decode()))
    return _finish(changed(state, content=state.sent, calls=tuple(calls)), "tool_calls")


def _completed(state: State, completed: pb.RunCompleted) -> tuple[State, list[Frame]]:
    final = completed.text
    if state.options.structured and not final:
        final = completed.value_json.decode()
    frames: list[Frame] = []
    rest = _unsent(state, final)
    if rest:
        state, frames = _text(state, rest, state.model_call_id)
    state = changed(state, citations=tuple(completed.citations), usage=completed.usage, content=final or state.sent)
    if state.held:
        frames.append(_chunk(state, {"content": state.held}))
    if state.options.footnotes:
        notes = sources.footnotes(state.citations)
        numbers = frozenset(citation.number for citation in state.citations)
        state = changed(state, content=sources.as_footnote_marks(state.content, numbers) + notes)
        if notes:
            frames.append(_chunk(state, {"content": notes}))
    if completed.finish_reason == "tool_calls":
        calls = tuple(Call(id=c.call_id, name=c.name, arguments=c.arguments_json.decode()) for c in state.proposed)
        state = changed(state, calls=calls)
    state, last = _finish(state, completed.finish_reason or "stop")
    return state, frames + last


def _unsent(state: State, final: str) -> str:
    """Return what of the final text is not on the wire yet: all, the end, or (when they differ) nothing."""
    for sent in (state.sent, state.current):
        if final.startswith(sent):
            return final[len(sent) :]
    return ""


def _finish(state: State, reason: str) -> tuple[State, list[Frame]]:
    state = changed(state, finish_reason=reason)
    frames: list[Frame] = []
    if state.calls:
        calls = [{"index": index, **_call_object(call)} for index, call in enumerate(state.calls)]
        frames.append(_chunk(state, {"tool_calls": calls}))
    last = _chunk(state, {}, reason)
    last["proctor"] = _extension(state)
    frames.append(last)
    if state.options.include_usage:
        usage = _chunk(state, {})
        usage["choices"] = []
        usage["usage"] = _usage(state.usage or agent_pb2.Usage())
        frames.append(usage)
    return state, frames


def _failed(state: State, reason: str, message: str) -> tuple[State, list[Frame]]:
    problem = failed_run(reason, message)
    error = error_object(problem, run_id=state.run_id, partial_text=state.sent)
    state = changed(state, error=error, error_status=problem.status)
    return state, [{"error": error}]


def _chunk(state: State, delta: Frame, finish_reason: str | None = None) -> Frame:
    return {
        "id": state.id,
        "object": "chat.completion.chunk",
        "created": state.created,
        "model": state.model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}],
    }


def _call_object(call: Call) -> Frame:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _call_id(event: pb.RunEvent) -> str:
    match event.WhichOneof("event"):
        case "approval_requested":
            return event.approval_requested.call_id
        case "questions_asked":
            return event.questions_asked.call_id
        case _:
            return event.client_tool_requested.call.call_id


def _annotations(state: State) -> list[Frame]:
    """Return the citations of web pages in the wire's own form; documents have no URL and stay in the extension."""
    return [
        {
            "type": "url_citation",
            "url_citation": {"start_index": start, "end_index": end, "title": evidence.title, "url": evidence.url},
        }
        for start, end, evidence in sources.marks(state.content, state.citations)
        if evidence.url
    ]


def _extension(state: State) -> Frame:
    return {
        "run_id": state.run_id,
        "conversation_id": state.conversation_id,
        "sources": [sources.source(citation) for citation in state.citations],
        "ignored": list(state.options.ignored),
    }


def _usage(usage: agent_pb2.Usage) -> Frame:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
