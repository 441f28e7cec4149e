"""Pending calls of a paused run on the OpenAI wires: as tool calls whose id says which run and call they belong to.

The id is all the state there is: a caller that re-sends its messages with an answer to such a call brings the decision
back to the run, whichever gateway it reaches.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from proctor.orchestrator.v1 import run_service_pb2 as pb
from services.gateway.bodies.openai_content import content_parts
from services.gateway.bodies.runs import ApprovalVerdict
from services.gateway.problems import BadInput
from services.gateway.protojson import from_json

PREFIX = "pause"
APPROVAL, QUESTIONS, CONTINUE, CLIENT_TOOL = "approval", "questions", "continue", "tool"
# What the caller's model or user sees these calls named.
TOOL_NAMES = {APPROVAL: "proctor_approval", QUESTIONS: "proctor_questions", CONTINUE: "proctor_continue"}


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
    except json.JSONDecodeError:
        return None
