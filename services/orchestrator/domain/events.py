"""Every event of a run. Each class mirrors the message of the same name in `proctor.orchestrator.v1`, field by field.

Deltas (ThinkingDelta, AnswerDelta, ToolCallDelta, ToolCallProgress) may be merged and may trail by one flush; all
others are facts and are committed before anyone sees them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum

from services.orchestrator.domain.messages import Artifact, Citation, Evidence, Spent, ToolCall, Usage


class Stage(IntEnum):
    """What a run is doing."""

    ROUTING = 1
    RETRIEVING = 2
    THINKING = 3
    CALLING_TOOLS = 4
    ANSWERING = 5
    WAITING = 6


class ToolStatus(IntEnum):
    """How a tool call ended."""

    COMPLETED = 1
    FAILED = 2
    DENIED = 3
    EXPIRED = 4
    UNKNOWN_TOOL = 5
    INVALID = 6
    DUPLICATE = 7
    OVER_BUDGET = 8
    CANCELLED = 9
    OUTCOME_UNKNOWN = 10


class ProgressStream(IntEnum):
    """Which output a progress piece is."""

    TEXT = 1
    STDOUT = 2
    STDERR = 3


class Resolution(IntEnum):
    """How a request for a decision ended."""

    APPROVED = 1
    EDITED = 2
    DENIED = 3
    EXPIRED = 4
    CANCELLED = 5
    ANSWERED = 6


class PauseKind(IntEnum):
    """What a pending call waits for."""

    APPROVAL = 1
    QUESTION = 2
    CONTINUE = 3
    CLIENT_TOOL = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The run was admitted."""

    conversation_id: str
    agent_id: str
    agent_name: str
    agent_version: int
    model: str
    user_message_id: str
    trace_id: str
    question: str
    prompt_name: str = ""
    prompt_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChanged:
    """A new stage began."""

    stage: Stage
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelScore:
    """One label's score."""

    label: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDecided:
    """The router decided."""

    scores: tuple[LabelScore, ...]
    choice: str
    explanation: str
    duration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    """Reasoning text, to be appended."""

    text: str
    model_call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDelta:
    """Answer text, to be appended."""

    text: str
    model_call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRetracted:
    """Everything shown of this model call is withdrawn."""

    model_call_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """A fragment of a call's arguments, to be appended."""

    call_id: str
    name: str
    arguments_fragment: str
    model_call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallProposed:
    """The model asks for a call."""

    call: ToolCall
    round: int
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted:
    """A call is about to run; committed before anything runs."""

    call_id: str
    name: str
    arguments_json: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallProgress:
    """Output of a running call."""

    call_id: str
    stream: ProgressStream
    text: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFinished:
    """A call has a result."""

    call_id: str
    name: str
    status: ToolStatus
    preview: str
    artifacts: tuple[Artifact, ...] = ()
    duration: timedelta = timedelta()
    result_bytes: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested:
    """A person is asked."""

    approval_id: str
    call_id: str
    tool: str
    arguments_json: bytes
    arguments_digest: str
    reason: str
    deadline: datetime | None
    policy: str
    parameters_json: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalResolved:
    """A decision came."""

    approval_id: str
    call_id: str
    resolution: Resolution
    decided_by: str
    edited_arguments_json: bytes = b""
    comment: str = ""
    waited: timedelta = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionsAsked:
    """The user is asked."""

    approval_id: str
    call_id: str
    questions_json: bytes
    deadline: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionsAnswered:
    """The user answered."""

    approval_id: str
    call_id: str
    answers_json: bytes
    skipped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientToolRequested:
    """The caller must execute a call."""

    call: ToolCall
    approval_id: str = ""
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceAdded:
    """A source got its number."""

    evidence: Evidence
    call_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactCreated:
    """A file was stored."""

    artifact: Artifact
    call_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One planned step."""

    step_id: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMade:
    """A plan was made."""

    complexity: str
    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """A step or workflow node began."""

    step_id: str
    title: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """A step or workflow node ended."""

    step_id: str
    failed: bool
    summary: str
    duration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallFinished:
    """A logical model call ended. Its numbers are the one measurement that span, metric and log carry too."""

    model_call_id: str
    purpose: str
    model: str
    total: timedelta
    started_at: datetime
    attempts: int = 1
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = ""
    error: str = ""
    fallback_from: str = ""
    queued: timedelta = timedelta()
    time_to_first_token: timedelta | None = None
    longest_stall: timedelta = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCompacted:
    """Older turns were replaced by a summary."""

    tokens_before: int
    tokens_after: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something the user should know."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """One thing a paused run waits for."""

    call_id: str
    kind: PauseKind
    approval_id: str
    tool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPaused:
    """The run waits."""

    pending: tuple[PendingCall, ...]
    deadline: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed:
    """The run goes on."""

    paused: timedelta
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCompleted:
    """The answer is complete."""

    message_id: str
    text: str
    value_json: bytes = b""
    citations: tuple[Citation, ...] = ()
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = "stop"
    unknown_citations: tuple[int, ...] = ()
    spent: Spent = field(default_factory=Spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed:
    """The run failed."""

    reason: str
    message: str
    retryable: bool
    message_id: str = ""
    partial_text: str = ""
    citations: tuple[Citation, ...] = ()
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCancelled:
    """The run was stopped."""

    cancelled_by: str
    message_id: str = ""
    partial_text: str = ""
    citations: tuple[Citation, ...] = ()
    usage: Usage = field(default_factory=Usage)


Delta = ThinkingDelta | AnswerDelta | ToolCallDelta | ToolCallProgress
Terminal = RunCompleted | RunFailed | RunCancelled
Fact = (
    RunStarted
    | StageChanged
    | RouteDecided
    | AnswerRetracted
    | ToolCallProposed
    | ToolCallStarted
    | ToolCallFinished
    | ApprovalRequested
    | ApprovalResolved
    | QuestionsAsked
    | QuestionsAnswered
    | ClientToolRequested
    | EvidenceAdded
    | ArtifactCreated
    | PlanMade
    | StepStarted
    | StepFinished
    | ModelCallFinished
    | HistoryCompacted
    | Notice
    | RunPaused
    | RunResumed
    | Terminal
)
Event = Delta | Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class StampedEvent:
    """An event with its place in the journal. `payload` is the encoded RunEvent message, made once.

    `kind` is the number of the event's arm in RunEvent, so that readers need not decode the payload.
    """

    sequence: int
    payload: bytes
    kind: int = 0
    terminal: bool = False
    pause: bool = False
