"""Decisions for the pending calls of a paused run."""

from __future__ import annotations

import json
from typing import Any, Literal

from proctor.agent.v1.agent_pb2 import Part
from proctor.orchestrator.v1.run_service_pb2 import AllowScope, CallDecision

Remember = Literal["once", "conversation", "always"]


def approve(call_id: str, *, remember: Remember | None = None, comment: str = "") -> CallDecision:
    """Let the call run as asked; `remember` also makes an allow rule."""
    decision = CallDecision(call_id=call_id)
    decision.approval.comment = comment
    scope = AllowScope.Value(f"ALLOW_SCOPE_{remember.upper()}") if remember else AllowScope.ALLOW_SCOPE_UNSPECIFIED
    decision.approval.approve.remember = scope
    decision.approval.approve.SetInParent()
    return decision


def deny(call_id: str, comment: str = "") -> CallDecision:
    """Refuse the call; the model is told why."""
    decision = CallDecision(call_id=call_id)
    decision.approval.comment = comment
    decision.approval.deny.SetInParent()
    return decision


def edit(call_id: str, arguments: dict[str, Any], comment: str = "") -> CallDecision:
    """Let the call run with other arguments."""
    decision = CallDecision(call_id=call_id)
    decision.approval.comment = comment
    decision.approval.edit.arguments_json = json.dumps(arguments, ensure_ascii=False).encode()
    return decision


def answer(call_id: str, answers: dict[str, Any]) -> CallDecision:
    """Answer the questions by their ids."""
    decision = CallDecision(call_id=call_id)
    decision.answers.answers_json = json.dumps(answers, ensure_ascii=False).encode()
    return decision


def skip(call_id: str) -> CallDecision:
    """Leave the questions to the model's best judgement."""
    decision = CallDecision(call_id=call_id)
    decision.answers.skipped = True
    return decision


def tool_result(call_id: str, text: str, *, failed: bool = False) -> CallDecision:
    """Return what the caller's own tool gave."""
    decision = CallDecision(call_id=call_id)
    decision.client_tool.result.append(Part(text=text))
    decision.client_tool.failed = failed
    return decision


def go_on(call_id: str, text: str) -> CallDecision:
    """Go on with a message."""
    decision = CallDecision(call_id=call_id)
    decision.continue_with.input.append(Part(text=text))
    return decision


def end(call_id: str) -> CallDecision:
    """End a run that waits to go on."""
    decision = CallDecision(call_id=call_id)
    decision.continue_with.SetInParent()
    return decision
