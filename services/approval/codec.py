"""Protobuf messages to domain values and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from proctor.agent.v1 import agent_pb2
from proctor.approval.v1 import approval_service_pb2 as pb
from services.approval.domain import (
    AllowRule,
    Answer,
    Approval,
    Approve,
    ClientResult,
    ContinueWith,
    Decision,
    Deny,
    Edit,
    Gate,
    Kind,
    Question,
    QuestionType,
    RuleScope,
    State,
)
from services.approval.policy import Binding, BindingPolicy, Ruling, ToolDefault
from services.approval.ports import AuditEntry
from services.approval.requests import Asked

# Microseconds of 100 years; what is longer is as good as for ever and must not overflow a date.
LONGEST = timedelta(days=36500)

KINDS = {
    pb.APPROVAL_KIND_TOOL: Kind.TOOL,
    pb.APPROVAL_KIND_QUESTION: Kind.QUESTION,
    pb.APPROVAL_KIND_CONTINUE: Kind.CONTINUE,
    pb.APPROVAL_KIND_CLIENT_TOOL: Kind.CLIENT_TOOL,
}
STATES = {
    pb.APPROVAL_STATE_PENDING: State.PENDING,
    pb.APPROVAL_STATE_APPROVED: State.APPROVED,
    pb.APPROVAL_STATE_EDITED: State.EDITED,
    pb.APPROVAL_STATE_DENIED: State.DENIED,
    pb.APPROVAL_STATE_EXPIRED: State.EXPIRED,
    pb.APPROVAL_STATE_CANCELLED: State.CANCELLED,
    pb.APPROVAL_STATE_ANSWERED: State.ANSWERED,
}
GATES = {
    pb.GATE_UNSPECIFIED: Gate.ASK,
    pb.GATE_ASK: Gate.ASK,
    pb.GATE_ASK_ALWAYS: Gate.ASK_ALWAYS,
    pb.GATE_DENY: Gate.DENY,
    pb.GATE_QUORUM: Gate.QUORUM,
    pb.GATE_ALLOW: Gate.ALLOW,
}
SCOPES = {
    pb.RULE_SCOPE_UNSPECIFIED: RuleScope.ONCE,
    pb.RULE_SCOPE_ONCE: RuleScope.ONCE,
    pb.RULE_SCOPE_CONVERSATION: RuleScope.CONVERSATION,
    pb.RULE_SCOPE_ALWAYS: RuleScope.ALWAYS,
}
QUESTION_TYPES = {
    pb.QUESTION_TYPE_TEXT: QuestionType.TEXT,
    pb.QUESTION_TYPE_NUMBER: QuestionType.NUMBER,
    pb.QUESTION_TYPE_DATE: QuestionType.DATE,
    pb.QUESTION_TYPE_EMAIL: QuestionType.EMAIL,
    pb.QUESTION_TYPE_URL: QuestionType.URL,
    pb.QUESTION_TYPE_LONG_TEXT: QuestionType.LONG_TEXT,
    pb.QUESTION_TYPE_SINGLE_CHOICE: QuestionType.SINGLE_CHOICE,
    pb.QUESTION_TYPE_MULTIPLE_CHOICE: QuestionType.MULTIPLE_CHOICE,
}
DEFAULTS = {
    pb.TOOL_DEFAULT_UNSPECIFIED: ToolDefault.ASK,
    pb.TOOL_DEFAULT_ALLOW: ToolDefault.ALLOW,
    pb.TOOL_DEFAULT_ASK: ToolDefault.ASK,
    pb.TOOL_DEFAULT_ASK_EVERY_CALL: ToolDefault.ASK_EVERY_CALL,
}
POLICIES = {
    agent_pb2.TOOL_POLICY_UNSPECIFIED: BindingPolicy.DEFAULT,
    agent_pb2.TOOL_POLICY_ALLOW: BindingPolicy.ALLOW,
    agent_pb2.TOOL_POLICY_ASK: BindingPolicy.ASK,
    agent_pb2.TOOL_POLICY_DENY: BindingPolicy.DENY,
    agent_pb2.TOOL_POLICY_QUORUM: BindingPolicy.QUORUM,
}

Wire = TypeVar("Wire")
Value = TypeVar("Value", bound=Enum)


def _number(table: dict[Wire, Value], value: Value) -> Wire:
    # The last one: an unspecified number stands before the number it means.
    return next(number for number, known in reversed(table.items()) if known is value)


def text(value: str) -> str:
    """Return `value` without NUL characters, which PostgreSQL's text cannot hold."""
    return value.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def _timestamp(at: datetime | None) -> Timestamp | None:
    if at is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(at.astimezone(UTC))
    return stamp


def duration(message: Duration) -> timedelta | None:
    """Return a duration, None when it is not positive: then the default serves."""
    seconds = min(message.seconds, int(LONGEST.total_seconds()))
    value = timedelta(seconds=seconds, microseconds=message.nanos // 1000)
    return value if value > timedelta() else None


def lifetime(message: pb.CreateAllowRuleRequest) -> timedelta | None:
    """Return how long a new rule lasts, None for ever; zero or less stays, to be refused."""
    if not message.HasField("lifetime"):
        return None
    return duration(message.lifetime) or timedelta()


def asked(message: pb.RequestApprovalRequest) -> Asked:
    """Read a request."""
    return Asked(
        approval_id=text(message.approval_id),
        kind=KINDS[message.kind],
        run_id=text(message.run_id),
        round=message.round,
        call_id=text(message.call_id),
        conversation_id=text(message.conversation_id),
        tool=text(message.tool),
        arguments=message.arguments_json,
        parameters=message.parameters_json,
        reason=text(message.reason),
        gate=GATES[message.gate],
        policy=text(message.policy),
        quorum=message.quorum,
        group=text(message.group),
        four_eyes=message.four_eyes,
        agent=text(message.agent),
        timeout=duration(message.timeout),
        questions=tuple(
            Question(
                question_id=question.question_id,
                text=question.text,
                type=QUESTION_TYPES[question.type],
                options=tuple(question.options),
                allow_other=question.allow_other,
                required=question.required,
            )
            for question in message.questions
        ),
    )


def decision(message: pb.DecideRequest | pb.DecideByLinkRequest) -> Decision:
    """Read a decision; validation has seen to it that there is one."""
    if isinstance(message, pb.DecideByLinkRequest):
        return Approve() if message.HasField("approve") else Deny()
    match message.WhichOneof("decision"):
        case "approve":
            return Approve(remember=SCOPES[message.approve.remember])
        case "edit":
            return Edit(arguments=message.edit.arguments_json)
        case "answer":
            return Answer(answers=message.answer.answers_json, skipped=message.answer.skipped)
        case "client_tool":
            return ClientResult(result=message.client_tool.result_json)
        case "continue_with":
            return ContinueWith(input=message.continue_with.input_json)
        case _:
            return Deny()


def approval_pb(approval: Approval) -> pb.Approval:
    """Render a record."""
    return pb.Approval(
        tenant=approval.tenant,
        approval_id=approval.approval_id,
        kind=_number(KINDS, approval.kind),
        state=_number(STATES, approval.state),
        run_id=approval.run_id,
        round=approval.round,
        call_id=approval.call_id,
        conversation_id=approval.conversation_id,
        tool=approval.tool,
        arguments_json=approval.arguments,
        arguments_digest=approval.arguments_digest,
        parameters_json=approval.parameters,
        reason=approval.reason,
        gate=_number(GATES, approval.gate),
        policy=approval.policy,
        quorum=approval.quorum,
        group=approval.group,
        four_eyes=approval.four_eyes,
        requested_by=approval.requested_by,
        agent=approval.agent,
        requested_at=_timestamp(approval.requested_at),
        deadline=_timestamp(approval.deadline),
        decided_by=approval.decided_by,
        decided_at=_timestamp(approval.decided_at),
        comment=approval.comment,
        edited_arguments_json=approval.edited_arguments,
        questions=[_question_pb(question) for question in approval.questions],
        answer_json=approval.answer,
        skipped=approval.skipped,
        agreed=approval.agreed,
    )


def _question_pb(question: Question) -> pb.Question:
    return pb.Question(
        question_id=question.question_id,
        text=question.text,
        type=_number(QUESTION_TYPES, question.type),
        options=question.options,
        allow_other=question.allow_other,
        required=question.required,
    )


def rule_pb(rule: AllowRule) -> pb.AllowRule:
    """Render an allow rule."""
    return pb.AllowRule(
        rule_id=rule.rule_id,
        tool=rule.tool,
        conversation_id=rule.conversation_id,
        arguments_digest=rule.arguments_digest,
        when=rule.when,
        user=rule.user,
        created_at=_timestamp(rule.created_at),
        expires_at=_timestamp(rule.expires_at),
    )


def binding(message: agent_pb2.ToolBinding) -> Binding:
    """Read a tool of an agent."""
    return Binding(
        tool=message.tool,
        policy=POLICIES[message.policy],
        when=message.when,
        quorum=message.quorum,
        group=text(message.group),
        deadline=duration(message.deadline),
        four_eyes=message.four_eyes,
    )


def ruling_pb(ruling: Ruling) -> pb.EvaluateGateResponse:
    """Render a ruling."""
    response = pb.EvaluateGateResponse(
        gate=_number(GATES, ruling.gate),
        policy=ruling.policy[:1024],
        quorum=ruling.quorum,
        group=ruling.group,
        four_eyes=ruling.four_eyes,
    )
    response.timeout.FromTimedelta(ruling.timeout)
    return response


def audit_entry_pb(entry: AuditEntry) -> pb.AuditEntry:
    """Render an entry of the audit log."""
    return pb.AuditEntry(
        sequence=entry.sequence,
        at=_timestamp(entry.at),
        action=entry.action,
        actor=entry.actor,
        subject=entry.subject,
        detail_json=entry.detail,
        previous_hash=entry.previous_hash,
        hash=entry.hash,
    )
