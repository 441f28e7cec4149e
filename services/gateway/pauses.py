"""Pending calls of a paused run on the OpenAI wires: as tool calls whose id says which run and call they belong to.

The id is all the state there is: a caller that re-sends its messages with an answer to such a call brings the decision
back to the run, whichever gateway it reaches.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import events_pb2
from proctor.orchestrator.v1 import run_service_pb2 as pb
from services.chassis.canonical import canonical_json
from services.gateway.bodies.openai_content import content_parts
from services.gateway.bodies.runs import ApprovalVerdict
from services.gateway.problems import BadInput
from services.gateway.protojson import embedded, from_json, timestamp_text

PREFIX = "pause"
APPROVAL, QUESTIONS, CONTINUE, CLIENT_TOOL = "approval", "questions", "continue", "tool"
# What the caller's model or user sees these calls named.
TOOL_NAMES = {APPROVAL: "proctor_approval", QUESTIONS: "proctor_questions", CONTINUE: "proctor_continue"}

_KINDS = {
    events_pb2.PauseKind.PAUSE_KIND_QUESTION: QUESTIONS,
    events_pb2.PauseKind.PAUSE_KIND_CONTINUE: CONTINUE,
    events_pb2.PauseKind.PAUSE_KIND_CLIENT_TOOL: CLIENT_TOOL,
}
PendingFunction = tuple[str, agent_pb2.ToolCall]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseId:
    """Names one pending call of one run."""

    kind: str
    run_id: str
    call_id: str

    def __str__(self) -> str:
        return f"{PREFIX}.{self.kind}.{self.run_id}.{self.call_id}"


def parse(text: str) -> PauseId | None:
    """Return the pending call that an id names, or None when it is an ordinary call's."""
    prefix, _, rest = text.partition(".")
    kind, _, rest = rest.partition(".")
    run_id, _, call_id = rest.partition(".")
    if prefix != PREFIX or kind not in {*TOOL_NAMES, CLIENT_TOOL} or not run_id or not call_id:
        return None
    return PauseId(kind=kind, run_id=run_id, call_id=call_id)


def as_function_call(
    run_id: str, pending: events_pb2.PendingCall, asked: events_pb2.RunEvent | None
) -> PendingFunction:
    """Return a pending call as a function call for the caller: the id to answer under, and the call.

    A tool of the caller's is itself; the other kinds are functions of ours whose arguments say what is asked.
    """
    kind = _KINDS.get(pending.kind, APPROVAL)
    pause_id = str(PauseId(kind=kind, run_id=run_id, call_id=pending.call_id))
    if asked is not None and asked.HasField("client_tool_requested"):
        return pause_id, asked.client_tool_requested.call
    name = TOOL_NAMES.get(kind, pending.tool)
    arguments = canonical_json(_facts(pending, asked))
    return pause_id, agent_pb2.ToolCall(call_id=pending.call_id, name=name, arguments_json=arguments)


def _facts(pending: events_pb2.PendingCall, asked: events_pb2.RunEvent | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"approval_id": pending.approval_id, "tool": pending.tool}
    if asked is not None and asked.HasField("approval_requested"):
        request = asked.approval_requested
        facts |= {"arguments": embedded(request.arguments_json), "reason": request.reason, "policy": request.policy}
        facts["deadline"] = timestamp_text(request.deadline)
    if asked is not None and asked.HasField("questions_asked"):
        facts |= {"questions": embedded(asked.questions_asked.questions_json)}
        facts["deadline"] = timestamp_text(asked.questions_asked.deadline)
    return facts


def model_call_id(text: str) -> str | None:
    """Return the id of the model's own call behind an id on the wire; None when it only served a pause."""
    pause = parse(text)
    if pause is None:
        return text
    return pause.call_id if pause.kind == CLIENT_TOOL else None


def decision(pause: PauseId, content: Any) -> pb.CallDecision:
    """Return the decision that an answer to such a call is; raise BadInput when it is none of its kind."""
    result = pb.CallDecision(call_id=pause.call_id)
    parts = content_parts(content)
    text = "".join(part.text for part in parts).strip()
    match pause.kind:
        case "approval":
            result.approval.CopyFrom(_verdict(text).to_proto())
        case "questions":
            from_json({"answers": _answers(text)}, result)
        case "continue":
            result.continue_with.input.extend(parts)
            result.continue_with.SetInParent()
        case _:
            result.client_tool.result.extend(parts)
            result.client_tool.SetInParent()
    return result


def _verdict(text: str) -> ApprovalVerdict:
    """Read `approve`, `deny`, or an object with `verdict` (or `decision`); nothing else may let a tool run."""
    words = {"approve": "approve", "deny": "deny"}
    value: Any = {"verdict": words[text.lower()]} if text.lower() in words else _object(text)
    if isinstance(value, dict):
        if "decision" in value:
            value["verdict"] = value.pop("decision")
        try:
            return ApprovalVerdict.model_validate(value)
        except ValidationError as error:
            raise BadInput(f"the answer to the approval does not fit: {error.errors()[0]['msg']}") from error
    raise BadInput(
        "an approval is answered by 'approve', 'deny' or an object "
        '{"decision": "approve" | "deny" | "edit", "arguments": {…}, "comment": "…"}; nothing was run'
    )


def _answers(text: str) -> dict[str, Any]:
    if text.lower() in {"", "skip", "skipped"}:
        return {"skipped": True}
    value = _object(text)
    if not isinstance(value, dict):
        raise BadInput("questions are answered by an object with a value for each question id, or by 'skip'")
    return {"answers_json": value.get("answers", value)}


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
