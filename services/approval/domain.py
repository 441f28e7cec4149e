"""What the approval service knows: records, questions, decisions, allow rules, and changes of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum


class Kind(StrEnum):
    """What a record asks for."""

    TOOL = "tool"
    QUESTION = "question"
    CONTINUE = "continue"
    CLIENT_TOOL = "client_tool"


class State(StrEnum):
    """Where a record stands; every state but PENDING is final."""

    PENDING = "pending"
    APPROVED = "approved"
    EDITED = "edited"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    ANSWERED = "answered"


class Gate(StrEnum):
    """How the policy treats a call. DENY and QUORUM are floors that no allow rule lowers."""

    ALLOW = "allow"
    ASK = "ask"
    ASK_ALWAYS = "ask_always"
    DENY = "deny"
    QUORUM = "quorum"


class RuleScope(StrEnum):
    """How far an approval reaches beyond its call."""

    ONCE = "once"
    CONVERSATION = "conversation"
    ALWAYS = "always"


class QuestionType(StrEnum):
    """Type of a question's answer."""

    TEXT = "text"
    NUMBER = "number"
    DATE = "date"
    EMAIL = "email"
    URL = "url"
    LONG_TEXT = "long_text"
    SINGLE_CHOICE = "single_choice"
    MULTIPLE_CHOICE = "multiple_choice"

    @property
    def is_choice(self) -> bool:
        return self in (QuestionType.SINGLE_CHOICE, QuestionType.MULTIPLE_CHOICE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question to the user; `options` and `allow_other` belong to choices."""

    question_id: str
    text: str
    type: QuestionType
    options: tuple[str, ...] = ()
    allow_other: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One record. JSON fields are canonical bytes, empty when absent; `version` rises with every change."""

    tenant: str
    approval_id: str
    kind: Kind
    state: State = State.PENDING
    run_id: str
    round: int
    call_id: str
    conversation_id: str = ""
    tool: str = ""
    arguments: bytes = b""
    arguments_digest: str = ""
    parameters: bytes = b""
    reason: str = ""
    gate: Gate = Gate.ASK
    policy: str = ""
    quorum: int = 0
    group: str = ""
    four_eyes: bool = False
    requested_by: str
    agent: str = ""
    requested_at: datetime
    deadline: datetime
    decided_by: str = ""
    decided_at: datetime | None = None
    comment: str = ""
    edited_arguments: bytes = b""
    questions: tuple[Question, ...] = ()
    answer: bytes = b""
    skipped: bool = False
    agreed: tuple[str, ...] = ()
    version: int = 1

    def lapsed(self, now: datetime) -> bool:
        """Return whether the deadline has passed although the record still says pending."""
        return self.state is State.PENDING and self.deadline <= now

    @property
    def size(self) -> int:
        """Bytes of its JSON, which is nearly all of it."""
        return len(self.arguments) + len(self.parameters) + len(self.edited_arguments) + len(self.answer)

    def settle(self, state: State, by: str, at: datetime) -> Approval:
        """Return the record in a final `state`."""
        return replace(self, state=state, decided_by=by, decided_at=at, version=self.version + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowRule:
    """A standing allowance of one user. No `conversation_id` is everywhere, no digest and no `when` any arguments."""

    tenant: str
    rule_id: str
    user: str
    tool: str
    conversation_id: str = ""
    arguments_digest: str = ""
    when: str = ""
    created_at: datetime
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approve:
    """Allow the call as asked, and remember that as far as `remember` says."""

    remember: RuleScope = RuleScope.ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """Refuse the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Allow the call with other arguments (JSON)."""

    arguments: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answers as JSON by question id, or none of them."""

    answers: bytes = b""
    skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResult:
    """What the caller's own tool returned: JSON `{"parts": […], "failed": bool}`."""

    result: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinueWith:
    """The next message as JSON parts; empty ends the run."""

    input: bytes = b""


Decision = Approve | Deny | Edit | Answer | ClientResult | ContinueWith


class Action(StrEnum):
    """What happened to a record or a rule."""

    REQUESTED = "requested"
    AGREED = "agreed"
    APPROVED = "approved"
    EDITED = "edited"
    DENIED = "denied"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    RULE_CREATED = "rule_created"
    RULE_DELETED = "rule_deleted"

    @property
    def on_rule(self) -> bool:
        return self in (Action.RULE_CREATED, Action.RULE_DELETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that happened, written in the transaction that made it happen.

    `sequence` is 0 until stored; then it rises in the order of commits over all tenants. `detail` is canonical JSON of
    facts for the audit log: digests, never arguments or answers.
    """

    sequence: int = 0
    tenant: str
    action: Action
    actor: str
    subject: str
    at: datetime
    detail: bytes
