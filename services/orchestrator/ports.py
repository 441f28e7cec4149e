"""The other services, as the orchestrator needs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from services.chassis.identity import Principal
from services.orchestrator.domain.agent import Searching, ToolBinding
from services.orchestrator.domain.conversation import Conversation, Feedback, StoredMessage
from services.orchestrator.domain.messages import Artifact
from services.orchestrator.domain.run import Run
from services.orchestrator.domain.usage import Consumption, Quota, QuotaScope, UsageDay
from services.orchestrator.evidence import Finding
from services.orchestrator.tools.ports import Consent


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNotice:
    """Something a search tells the user, for example that a source failed."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Findings, best first, and notices."""

    findings: tuple[Finding, ...]
    notices: tuple[SourceNotice, ...] = ()
    stages: tuple[str, ...] = ()


class Retrieval(Protocol):
    """Searches sources on behalf of a principal."""

    async def search(
        self,
        principal: Principal,
        query: str,
        *,
        sources: tuple[str, ...],
        history: tuple[str, ...],
        how: Searching,
        path: str = "",
    ) -> SearchResult:
        """Search `sources`, all readable ones when empty; with `path` only documents whose path fits this pattern."""


class Conversations(Protocol):
    """Conversations of users, as a run reads them; writing belongs to the run's own transactions."""

    async def history(self, tenant: str, user: str, conversation_id: str) -> Sequence[StoredMessage]: ...


class ConversationKeeper(Conversations, Protocol):
    """Conversations as their owner tends them. Each raises ConversationNotFound for what is missing or another's."""

    async def get(self, tenant: str, user: str, conversation_id: str) -> Conversation: ...

    async def rename(
        self, tenant: str, user: str, conversation_id: str, title: str, *, only_from: str = ""
    ) -> bool: ...

    async def delete(self, tenant: str, user: str, conversation_id: str) -> None: ...

    async def rate(self, tenant: str, user: str, conversation_id: str, message_id: str, feedback: Feedback) -> None: ...

    async def everything(self, tenant: str, user: str, conversation_id: str) -> Sequence[StoredMessage]: ...

    async def list(
        self, tenant: str, user: str, *, query: str, limit: int, after: tuple[datetime, str] | None
    ) -> Sequence[Conversation]: ...


class UsageKeeper(Protocol):
    """Quotas of tenants and what was used of them."""

    async def set_quota(self, tenant: str, quota: Quota) -> None: ...

    async def quotas(self, tenant: str) -> Sequence[Quota]: ...

    async def consumed(self, tenant: str, scope: QuotaScope, subject: str = "") -> Consumption: ...

    async def by_day(self, tenant: str, *, since: datetime, user: str) -> Sequence[UsageDay]: ...

    async def forget(self, before: datetime) -> int: ...


class Standing(Protocol):
    """Whether what was admitted once is still admitted."""

    async def check(self, run: Run) -> None:
        """Raise KeyEnded for ever, or QuotaExceeded for a while, when a run that waited may not go on."""
        ...

    async def end_key(self, tenant: str, key_id: str) -> None:
        """Remember that a key was revoked; again is once."""
        ...

    async def forget_keys(self, before: datetime) -> int: ...


class GateVerdict(Enum):
    """What the policy says of a call."""

    ALLOW = "allow"
    ASK = "ask"
    ASK_ALWAYS = "ask_always"
    DENY = "deny"
    QUORUM = "quorum"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """A verdict with its policy in words, and how long people have."""

    verdict: GateVerdict
    policy: str = ""
    quorum: int = 0
    group: str = ""
    four_eyes: bool = False
    timeout: timedelta | None = None


class RequestKind(Enum):
    """What a request asks for."""

    TOOL = "tool"
    QUESTION = "question"
    CONTINUE = "continue"
    CLIENT_TOOL = "client_tool"


class RecordState(Enum):
    """State of a request."""

    PENDING = "pending"
    APPROVED = "approved"
    EDITED = "edited"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    ANSWERED = "answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A request for a decision. The id derives from run, round and call, so asking twice is asking once."""

    approval_id: str
    kind: RequestKind
    run_id: str
    round: int
    call_id: str
    conversation_id: str
    tool: str
    arguments_json: bytes
    parameters_json: bytes
    reason: str
    agent: str
    decision: GateDecision
    questions_json: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRecord:
    """A request and what became of it."""

    approval_id: str
    run_id: str
    call_id: str
    state: RecordState
    arguments_digest: str
    deadline: datetime | None
    policy: str = ""
    decided_by: str = ""
    decided_at: datetime | None = None
    comment: str = ""
    edited_arguments_json: bytes = b""
    answer_json: bytes = b""
    skipped: bool = False
    requested_at: datetime | None = None
    question_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision that a caller brings to a run. `kind` is approve, deny, edit, answer, client_tool or continue."""

    call_id: str
    kind: str
    payload_json: bytes = b""
    remember: int = 0
    skipped: bool = False
    comment: str = ""


class Approvals(Protocol):
    """Asks people. Every call acts for a principal."""

    async def evaluate(
        self,
        principal: Principal,
        *,
        tool: str,
        consent: Consent,
        arguments_json: bytes,
        bindings: tuple[ToolBinding, ...],
        conversation_id: str,
        unattended: bool,
    ) -> GateDecision: ...

    async def request(self, principal: Principal, request: ApprovalRequest) -> ApprovalRecord: ...

    async def get(self, principal: Principal, approval_ids: Sequence[str]) -> dict[str, ApprovalRecord]: ...

    async def decide(
        self, principal: Principal, approval_id: str, run_id: str, decision: Decision
    ) -> ApprovalRecord: ...

    async def cancel(self, principal: Principal, approval_id: str) -> None: ...

    def changes(self) -> AsyncIterator[str]:
        """Yield ids of runs whose requests changed: a hint, over every tenant."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOutput:
    """Output while code runs; `is_error` is standard error."""

    text: str
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxFile:
    """A file the code made, stored already."""

    artifact: Artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxEnd:
    """How the code ended. `status` is ok, error, timeout, cpu, oom, output_limit, cancelled or sandbox_error."""

    status: str
    exit_code: int
    message: str
    dropped: tuple[str, ...] = ()
    cpu: timedelta = timedelta()
    wall: timedelta = timedelta()
    truncated: bool = False


SandboxEvent = SandboxOutput | SandboxFile | SandboxEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """Whether code may run on the sandbox's machine, and why not."""

    safe: bool
    explanation: str = ""
    packages: tuple[str, ...] = field(default=())


class Sandbox(Protocol):
    """Runs code that nobody trusts. Repeating an execution id re-attaches."""

    def execute(
        self, principal: Principal, *, execution_id: str, code: str, run_id: str, session_id: str = ""
    ) -> AsyncIterator[SandboxEvent]: ...

    async def isolation(self) -> Isolation: ...
