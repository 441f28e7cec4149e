"""OpenAI's Responses as a fold over a run's events: typed events with sequence numbers, and the response object.

One response is one leg of a run: it ends with the run, or where the run pauses for its caller (an approval request, a
function call). The same events always give the same frames with the same numbers, so a client that comes back is
served by folding again and dropping what it has seen.
"""

from __future__ import annotations

from collections.abc import Callable

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import events_pb2 as pb
from services.gateway import pauses
from services.gateway.projections import progress
from services.gateway.projections import response_items as items
from services.gateway.projections.response_items import Frame
from services.gateway.projections.response_state import IN_PROGRESS, State, response
from services.gateway.projections.response_writer import Writer
from services.gateway.protojson import timestamp_text

# The wire knows a closed set of codes; ours goes beside.
_ERROR_CODES = {
    "QUOTA_EXCEEDED": "rate_limit_exceeded",
    "MODEL_RATE_LIMITED": "rate_limit_exceeded",
    "OVERLOADED": "rate_limit_exceeded",
    "CONTEXT_OVERFLOW": "invalid_prompt",
    "INVALID_REQUEST": "invalid_prompt",
}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def fold(state: State, event: pb.RunEvent) -> tuple[State, list[Frame]]:
    """Return the state after `event` and the frames it makes. Nothing follows once the state has ended."""
    if state.ended:
        return state, []
    writer = Writer(state)
    if state.status == "queued":
        _begin(writer, event)
    handle = _HANDLERS.get(event.WhichOneof("event") or "")
    if handle is not None:
        handle(writer, event)
    return writer.state, writer.frames


def _begin(writer: Writer, event: pb.RunEvent) -> None:
    started = event.run_started
    writer.set(
        status=IN_PROGRESS,
        run_id=event.run_id,
        created_at=event.at.seconds,
        model=started.model,
        conversation_id=started.conversation_id,
    )
    writer.emit("response.created", response=response(writer.state))
    writer.emit("response.in_progress", response=response(writer.state))


def _answer(writer: Writer, event: pb.RunEvent) -> None:
    if event.step_id or writer.state.structured:
        return
    delta = event.answer_delta
    if writer.state.open != "message" or delta.model_call_id != writer.state.model_call_id:
        writer.open_message(delta.model_call_id)
    writer.write("response.output_text.delta", delta.text, logprobs=[])


def _think(writer: Writer, event: pb.RunEvent) -> None:
    if not event.step_id:
        _reason(writer, event.thinking_delta.text)


def _plan(writer: Writer, event: pb.RunEvent) -> None:
    writer.set(planned=progress.titles(event.plan_made))
    _reason(writer, progress.plan_text(event.plan_made))


def _step_ends(writer: Writer, event: pb.RunEvent) -> None:
    _reason(writer, progress.step_text(writer.state.planned, event.step_finished))


def _reason(writer: Writer, text: str) -> None:
    if not text:
        return
    if writer.state.open != "reasoning":
        writer.close()
        item = items.reasoning(writer.item_id("rs"), "", IN_PROGRESS)
        writer.add(item, "reasoning")
        writer.emit_part("response.content_part.added", {"type": "reasoning_text", "text": ""})
    writer.write("response.reasoning_text.delta", text)


def _tool_started(writer: Writer, event: pb.RunEvent) -> None:
    started = event.tool_call_started
    _tool_begins(writer, started.call_id, started.name, started.arguments_json.decode())


def _tool_begins(writer: Writer, call_id: str, name: str, arguments: str) -> None:
    writer.close()
    index = len(writer.state.output)
    item_id = writer.item_id("mcp")
    writer.add(items.tool_call(item_id, name, arguments, IN_PROGRESS, None, None), "")
    writer.set(running={**writer.state.running, call_id: index})
    place = {"item_id": item_id, "output_index": index}
    writer.emit("response.mcp_call.in_progress", **place)
    writer.emit("response.mcp_call_arguments.done", **place, arguments=arguments)


def _tool_ends(writer: Writer, event: pb.RunEvent) -> None:
    finished = event.tool_call_finished
    if finished.call_id not in writer.state.running:
        proposed = writer.state.proposed.get(finished.call_id)
        if proposed is None or finished.call_id in writer.state.asked:
            return  # the caller's own function, or a call of the leg before
        arguments = proposed.tool_call_proposed.call.arguments_json.decode()
        _tool_begins(writer, finished.call_id, finished.name, arguments)
    remaining = {name: proposal for name, proposal in writer.state.proposed.items() if name != finished.call_id}
    writer.set(proposed=remaining)
    index = writer.state.running[finished.call_id]
    begun = writer.state.output[index]
    completed = finished.status == agent_pb2.ToolStatus.TOOL_STATUS_COMPLETED
    status = "completed" if completed else "failed"
    output, error = (finished.preview, None) if completed else (None, finished.preview)
    item = items.tool_call(begun["id"], begun["name"], begun["arguments"], status, output, error)
    writer.emit(f"response.mcp_call.{status}", item_id=begun["id"], output_index=index)
    writer.finish_item(index, item)


def _function_call(writer: Writer, call_id: str, call: agent_pb2.ToolCall) -> None:
    arguments = call.arguments_json.decode() or "{}"
    item_id = writer.item_id("fc")
    writer.add(items.function_call(item_id, call_id, call.name, "", IN_PROGRESS), "")
    index = len(writer.state.output) - 1
    place = {"item_id": item_id, "output_index": index}
    writer.emit("response.function_call_arguments.delta", **place, delta=arguments)
    writer.emit("response.function_call_arguments.done", **place, name=call.name, arguments=arguments)
    writer.finish_item(index, items.function_call(item_id, call_id, call.name, arguments, "completed"))


def _approval(writer: Writer, pending: pb.PendingCall, asked: pb.RunEvent | None) -> None:
    request = asked.approval_requested if asked is not None else pb.ApprovalRequested()
    pause = pauses.PauseId(kind=pauses.APPROVAL, run_id=writer.state.run_id, call_id=pending.call_id)
    facts = {"approval_id": pending.approval_id, "reason": request.reason, "policy": request.policy}
    if request.HasField("deadline"):
        facts["deadline"] = timestamp_text(request.deadline)
    arguments = request.arguments_json.decode() or "{}"
    item = items.approval_request(f"mcpr_{pause}", pending.tool, arguments, facts)
    writer.add(item, "")
    writer.finish_item(len(writer.state.output) - 1, item)


def _pause(writer: Writer, event: pb.RunEvent) -> None:
    writer.close()
    for pending in event.run_paused.pending:
        asked = writer.state.asked.get(pending.call_id)
        if pending.kind == pb.PauseKind.PAUSE_KIND_APPROVAL:
            _approval(writer, pending, asked)
        else:
            _function_call(writer, *pauses.as_function_call(writer.state.run_id, pending, asked))
    _end(writer, "completed", event)


def _complete(writer: Writer, event: pb.RunEvent) -> None:
    completed = event.run_completed
    writer.set(citations=tuple(completed.citations), usage=completed.usage)
    _final_text(writer, completed.text or (completed.value_json.decode() if writer.state.structured else ""))
    writer.close()
    if completed.finish_reason == "tool_calls":
        for proposal in writer.state.proposed.values():
            call = proposal.tool_call_proposed.call
            _function_call(writer, call.call_id, call)
    incomplete = _INCOMPLETE.get(completed.finish_reason, "")
    writer.set(incomplete=incomplete)
    _end(writer, "incomplete" if incomplete else "completed", event)


def _final_text(writer: Writer, final: str) -> None:
    """Write what of the final text has not been written."""
    if writer.state.open == "message":
        rest = final[len(writer.state.text) :] if final.startswith(writer.state.text) else ""
    else:
        written = [_text_of(item) for item in writer.state.output if item["type"] == "message"]
        rest = "" if final in written else final
    if rest:
        if writer.state.open != "message":
            writer.open_message("")
        writer.write("response.output_text.delta", rest, logprobs=[])


def _retract(writer: Writer, event: pb.RunEvent) -> None:
    if event.step_id:
        return  # a step's text is not on this wire
    _fail(writer, "MODEL_STREAM_BROKEN", f"the answer was withdrawn: {event.answer_retracted.reason}", event)


def _run_failed(writer: Writer, event: pb.RunEvent) -> None:
    _fail(writer, event.run_failed.reason, event.run_failed.message, event)


def _fail(writer: Writer, reason: str, text: str, event: pb.RunEvent) -> None:
    error = {"code": _ERROR_CODES.get(reason, "server_error"), "message": text, "proctor": {"reason": reason}}
    writer.set(error=error, usage=event.run_failed.usage)
    writer.close()
    _end(writer, "failed", event)


def _cancel(writer: Writer, event: pb.RunEvent) -> None:
    writer.close()
    writer.set(usage=event.run_cancelled.usage)
    _end(writer, "cancelled", event)


def _end(writer: Writer, status: str, event: pb.RunEvent) -> None:
    writer.set(status=status, completed_at=event.at.seconds if status == "completed" else None)
    # The wire has no event of its own for a response that was stopped.
    writer.emit(
        "response.incomplete" if status == "cancelled" else f"response.{status}", response=response(writer.state)
    )


def _text_of(item: Frame) -> str:
    return "".join(part["text"] for part in item["content"])


def _remember_proposal(writer: Writer, event: pb.RunEvent) -> None:
    writer.set(proposed={**writer.state.proposed, event.tool_call_proposed.call.call_id: event})


def _remember_question(writer: Writer, event: pb.RunEvent) -> None:
    match event.WhichOneof("event"):
        case "approval_requested":
            call_id = event.approval_requested.call_id
        case "questions_asked":
            call_id = event.questions_asked.call_id
        case _:
            call_id = event.client_tool_requested.call.call_id
    writer.set(asked={**writer.state.asked, call_id: event})


_HANDLERS: dict[str, Callable[[Writer, pb.RunEvent], None]] = {
    "answer_delta": _answer,
    "thinking_delta": _think,
    "plan_made": _plan,
    "step_finished": _step_ends,
    "tool_call_proposed": _remember_proposal,
    "tool_call_started": _tool_started,
    "tool_call_finished": _tool_ends,
    "approval_requested": _remember_question,
    "questions_asked": _remember_question,
    "client_tool_requested": _remember_question,
    "answer_retracted": _retract,
    "run_paused": _pause,
    "run_completed": _complete,
    "run_failed": _run_failed,
    "run_cancelled": _cancel,
}
