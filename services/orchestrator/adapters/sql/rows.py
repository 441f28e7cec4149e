"""Rows ⇄ domain objects."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from proctor.agent.v1 import agent_pb2
from services.orchestrator.codec_reflect import from_pb, to_pb
from services.orchestrator.domain.conversation import Conversation, Feedback, Rating, StoredMessage
from services.orchestrator.domain.events import PauseKind, PendingCall, StampedEvent
from services.orchestrator.domain.messages import Message, Usage
from services.orchestrator.domain.run import NewRun, Run, RunState
from services.orchestrator.domain.text import all_well_formed, without_nul
from services.orchestrator.journal.ports import LeaseTerms

_USAGE = tuple(field.name for field in fields(Usage))
TERMINAL_STATES = tuple(int(state) for state in RunState if state.is_terminal)


def event_row(run_id: str, event: StampedEvent) -> dict[str, Any]:
    """Return the row of an event."""
    return {
        "run_id": run_id,
        "sequence": event.sequence,
        "kind": event.kind,
        "size": len(event.payload),
        "payload": event.payload,
    }


def new_run_row(new: NewRun, terms: LeaseTerms, now: datetime) -> dict[str, Any]:
    """Return the first row of a run, all but `lease_until`, which the database computes."""
    run = new.run
    return {
        "run_id": run.run_id,
        "tenant": run.tenant,
        "user_id": run.user,
        "request_id": run.request_id or None,
        "request_digest": new.request_digest,
        "conversation_id": run.conversation_id,
        "state": int(run.state),
        "agent_id": run.agent_id,
        "agent_name": run.agent_name,
        "agent_version": run.agent_version,
        "model": run.model,
        "question": without_nul(run.question),
        "labels": {without_nul(key): without_nul(value) for key, value in run.labels.items()},
        "trace_id": run.trace_id,
        "created_at": run.created_at,
        "updated_at": now,
        "finished_at": None,
        "owner": terms.owner,
        "epoch": 1,
        "attempt": 1,
        "last_sequence": len(new.events),
        "reserved_until": terms.block,
        "oldest_sequence": 1,
        "min_reader": new.checkpoint.min_reader,
        "pending": pending_json(run.pending),
        "usage": usage_json(run.usage),
        "failure": "",
        "cancel_requested_by": "",
        "pruned": False,
    }


def run_from_row(row: Row[Any]) -> Run:
    """Return a row of `runs` as a Run."""
    return Run(
        run_id=row.run_id,
        tenant=row.tenant,
        user=row.user_id,
        state=RunState(row.state),
        agent_id=row.agent_id,
        agent_name=row.agent_name,
        agent_version=row.agent_version,
        model=row.model,
        created_at=row.created_at,
        updated_at=row.updated_at,
        conversation_id=row.conversation_id,
        request_id=row.request_id or "",
        finished_at=row.finished_at,
        last_sequence=row.last_sequence,
        oldest_sequence=row.oldest_sequence,
        pending=tuple(
            PendingCall(call_id=p["call_id"], kind=PauseKind(p["kind"]), approval_id=p["approval_id"], tool=p["tool"])
            for p in row.pending
        ),
        attempt=row.attempt,
        usage=Usage(**row.usage),
        question=row.question,
        failure=row.failure,
        labels=dict(row.labels),
        trace_id=row.trace_id,
        cancel_requested_by=row.cancel_requested_by,
    )


def usage_json(usage: Usage) -> dict[str, Any]:
    """Return a usage as the JSON column holds it."""
    return {name: getattr(usage, name) for name in _USAGE}


def pending_json(pending: tuple[PendingCall, ...]) -> list[dict[str, Any]]:
    """Return pending calls as the JSON column holds them."""
    return [{"call_id": p.call_id, "kind": int(p.kind), "approval_id": p.approval_id, "tool": p.tool} for p in pending]


def message_row(conversation_id: str, position: int, run_id: str, message: Message) -> dict[str, Any]:
    """Return a new row of `messages`. A message without an id is known by its place."""
    return {
        "conversation_id": conversation_id,
        "position": position,
        "message_id": message.message_id or f"{run_id}/{position}",
        "run_id": run_id,
        "role": int(message.role),
        "content": to_pb(all_well_formed(message), agent_pb2.Message).SerializeToString(),
        "search": without_nul(message.text).casefold(),
        "superseded_by": "",
        "rating": int(Rating.NONE),
        "comment": "",
    }


def message_from_row(row: Row[Any]) -> StoredMessage:
    """Return a row of `messages`."""
    feedback = None
    if row.rating or row.comment:
        feedback = Feedback(rating=Rating(row.rating), comment=row.comment)
    return StoredMessage(
        position=row.position,
        run_id=row.run_id,
        message=from_pb(agent_pb2.Message.FromString(row.content), Message),
        superseded_by=row.superseded_by,
        feedback=feedback,
    )


def conversation_from_row(row: Row[Any], active_run_id: str) -> Conversation:
    """Return a row of `conversations`."""
    return Conversation(
        conversation_id=row.conversation_id,
        tenant=row.tenant,
        user=row.user_id,
        title=row.title,
        created_at=row.created_at,
        updated_at=row.updated_at,
        active_run_id=active_run_id,
    )
