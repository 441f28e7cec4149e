"""Requests from plain arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration

from proctor.agent.v1.agent_pb2 import Part
from proctor.orchestrator.v1.run_service_pb2 import CallDecision, ResumeRunRequest, StartRunRequest

Question = str | Part | Sequence[Part]


def start(question: Question, request_id: str, **options: Any) -> StartRunRequest:
    """Return a request; `options` are fields of StartRunRequest, `agent` stands for agent_id and `hold` for seconds."""
    if "agent" in options:
        options["agent_id"] = options.pop("agent")
    if isinstance(options.get("hold"), int | float):
        options["hold"] = seconds(options["hold"])
    options.setdefault("request_id", request_id)
    return StartRunRequest(input=_parts(question), **options)


def resume(run_id: str, decisions: Sequence[CallDecision], text: str, after: int) -> ResumeRunRequest:
    """Return a request."""
    return ResumeRunRequest(run_id=run_id, decisions=decisions, text=text, after_sequence=after)


def seconds(value: float) -> Duration:
    """Return seconds as a protobuf duration."""
    duration = Duration()
    duration.FromNanoseconds(round(value * 1e9))
    return duration


def _parts(question: Question) -> list[Part]:
    if isinstance(question, str):
        return [Part(text=question)] if question else []
    return [question] if isinstance(question, Part) else list(question)
