"""Domain values to rows of the tables and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import RowMapping

from services.approval.domain import Action, AllowRule, Approval, Change, Gate, Kind, Question, QuestionType, State
from services.approval.ports import AuditEntry, Delivery
from services.chassis.canonical import canonical_json

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Return microseconds since 1970."""
    return (at - EPOCH) // MICROSECOND


def moment(value: int) -> datetime:
    """Return the time that `micros` made a number of."""
    return EPOCH + value * MICROSECOND


def approval_row(approval: Approval) -> dict[str, Any]:
    """Return the column values of `approval`."""
    return {
        "approval_id": approval.approval_id,
        "tenant": approval.tenant,
        "kind": approval.kind,
        "state": approval.state,
        "run_id": approval.run_id,
        "round": approval.round,
        "call_id": approval.call_id,
        "conversation_id": approval.conversation_id,
        "tool": approval.tool,
        "arguments": approval.arguments,
        "arguments_digest": approval.arguments_digest,
        "parameters": approval.parameters,
        "reason": approval.reason,
        "gate": approval.gate,
        "policy": approval.policy,
        "quorum": approval.quorum,
        "group_name": approval.group,
        "four_eyes": int(approval.four_eyes),
        "requested_by": approval.requested_by,
        "agent": approval.agent,
        "requested_at": micros(approval.requested_at),
        "deadline": micros(approval.deadline),
        "decided_by": approval.decided_by,
        "decided_at": None if approval.decided_at is None else micros(approval.decided_at),
        "comment": approval.comment,
        "edited_arguments": approval.edited_arguments,
        "questions": _questions_bytes(approval.questions),
        "answer": approval.answer,
        "skipped": int(approval.skipped),
        "agreed": json.dumps(approval.agreed),
        "version": approval.version,
    }


def approval_of(row: RowMapping) -> Approval:
    """Return the record in `row`."""
    return Approval(
        tenant=row["tenant"],
        approval_id=row["approval_id"],
        kind=Kind(row["kind"]),
        state=State(row["state"]),
        run_id=row["run_id"],
        round=row["round"],
        call_id=row["call_id"],
        conversation_id=row["conversation_id"],
        tool=row["tool"],
        arguments=row["arguments"],
        arguments_digest=row["arguments_digest"],
        parameters=row["parameters"],
        reason=row["reason"],
        gate=Gate(row["gate"]),
        policy=row["policy"],
        quorum=row["quorum"],
        group=row["group_name"],
        four_eyes=bool(row["four_eyes"]),
        requested_by=row["requested_by"],
        agent=row["agent"],
        requested_at=moment(row["requested_at"]),
        deadline=moment(row["deadline"]),
        decided_by=row["decided_by"],
        decided_at=None if row["decided_at"] is None else moment(row["decided_at"]),
        comment=row["comment"],
        edited_arguments=row["edited_arguments"],
        questions=_questions(row["questions"]),
        answer=row["answer"],
        skipped=bool(row["skipped"]),
        agreed=tuple(json.loads(row["agreed"])),
        version=row["version"],
    )


def _questions_bytes(questions: tuple[Question, ...]) -> bytes:
    if not questions:
        return b""
    return canonical_json(
        [
            {
                "id": question.question_id,
                "text": question.text,
                "type": question.type,
                "options": list(question.options),
                "other": question.allow_other,
                "required": question.required,
            }
            for question in questions
        ]
    )


def _questions(data: bytes) -> tuple[Question, ...]:
    return tuple(
        Question(
            question_id=question["id"],
            text=question["text"],
            type=QuestionType(question["type"]),
            options=tuple(question["options"]),
            allow_other=question["other"],
            required=question["required"],
        )
        for question in (json.loads(data) if data else ())
    )


def rule_row(rule: AllowRule) -> dict[str, Any]:
    """Return the column values of `rule`."""
    return {
        "tenant": rule.tenant,
        "rule_id": rule.rule_id,
        "user_name": rule.user,
        "tool": rule.tool,
        "conversation_id": rule.conversation_id,
        "arguments_digest": rule.arguments_digest,
        "condition": rule.when,
        "created_at": micros(rule.created_at),
        "expires_at": None if rule.expires_at is None else micros(rule.expires_at),
    }


def rule_of(row: RowMapping) -> AllowRule:
    """Return the rule in `row`."""
    return AllowRule(
        tenant=row["tenant"],
        rule_id=row["rule_id"],
        user=row["user_name"],
        tool=row["tool"],
        conversation_id=row["conversation_id"],
        arguments_digest=row["arguments_digest"],
        when=row["condition"],
        created_at=moment(row["created_at"]),
        expires_at=None if row["expires_at"] is None else moment(row["expires_at"]),
    )


def change_row(change: Change) -> dict[str, Any]:
    """Return the column values of `change`; the database gives the sequence."""
    return {
        "tenant": change.tenant,
        "action": change.action,
        "actor": change.actor,
        "subject": change.subject,
        "at": micros(change.at),
        "detail": change.detail,
    }


def change_of(row: RowMapping) -> Change:
    """Return the change in `row`."""
    return Change(
        sequence=row["sequence"],
        tenant=row["tenant"],
        action=Action(row["action"]),
        actor=row["actor"],
        subject=row["subject"],
        at=moment(row["at"]),
        detail=row["detail"],
    )


def entry_row(entry: AuditEntry) -> dict[str, Any]:
    """Return the column values of `entry`."""
    return {
        "tenant": entry.tenant,
        "sequence": entry.sequence,
        "at": micros(entry.at),
        "action": entry.action,
        "actor": entry.actor,
        "subject": entry.subject,
        "detail": entry.detail,
        "previous_hash": entry.previous_hash,
        "hash": entry.hash,
    }


def entry_of(row: RowMapping) -> AuditEntry:
    """Return the audit entry in `row`."""
    return AuditEntry(**{**row, "at": moment(row["at"])})


def delivery_row(delivery: Delivery) -> dict[str, Any]:
    """Return the column values of a new delivery."""
    return {
        "delivery_id": delivery.delivery_id,
        "endpoint": delivery.endpoint,
        "tenant": delivery.tenant,
        "approval_id": delivery.approval_id,
        "event": delivery.event,
        "body": delivery.body,
        "attempts": delivery.attempts,
        "next_at": micros(delivery.next_at),
        "error": "",
    }


def delivery_of(row: RowMapping) -> Delivery:
    """Return the delivery in `row`."""
    return Delivery(
        delivery_id=row["delivery_id"],
        endpoint=row["endpoint"],
        tenant=row["tenant"],
        approval_id=row["approval_id"],
        event=row["event"],
        body=row["body"],
        attempts=row["attempts"],
        next_at=moment(row["next_at"]),
    )
