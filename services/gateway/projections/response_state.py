"""Where a response on the Responses wire stands, and the response object made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import events_pb2 as pb
from services.gateway.projections import response_items as items
from services.gateway.projections import sources
from services.gateway.projections.response_items import Frame

IN_PROGRESS = "in_progress"


# Without slots, for `changed`.
@dataclass(frozen=True, kw_only=True)
class State:
    """Where a response stands. `echo` is what it repeats of its request; `text` is that of the open item."""

    id: str
    echo: Mapping[str, Any] = field(default_factory=dict)
    # A form was asked for: only the final text is sent, once it is whole.
    structured: bool = False
    run_id: str = ""
    conversation_id: str = ""
    created_at: int = 0
    completed_at: int | None = None
    model: str = ""
    number: int = 0
    output: tuple[Frame, ...] = ()
    # What the last item is while it is still written: message, reasoning, or nothing.
    open: str = ""
    text: str = ""
    model_call_id: str = ""
    # Titles of the steps that are planned, by id.
    planned: Mapping[str, str] = field(default_factory=dict)
    proposed: Mapping[str, pb.RunEvent] = field(default_factory=dict)
    running: Mapping[str, int] = field(default_factory=dict)
    asked: Mapping[str, pb.RunEvent] = field(default_factory=dict)
    citations: tuple[agent_pb2.Citation, ...] = ()
    usage: agent_pb2.Usage | None = None
    status: str = "queued"
    error: Frame | None = None
    incomplete: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self.status not in {"queued", IN_PROGRESS}


def response(state: State) -> Frame:
    """Return the response object as it stands."""
    return {
        **items.DEFAULTS,
        **state.echo,
        "id": state.id,
        "object": "response",
        "created_at": state.created_at,
        "completed_at": state.completed_at,
        "status": state.status,
        "error": state.error,
        "incomplete_details": {"reason": state.incomplete} if state.incomplete else None,
        "model": state.model or state.echo.get("model") or "",
        "output": list(state.output),
        "conversation": {"id": state.conversation_id} if state.conversation_id else None,
        "usage": items.usage(state.usage),
        "proctor": {"run_id": state.run_id, "sources": [sources.source(one) for one in state.citations]},
    }
