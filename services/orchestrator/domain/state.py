"""The state of a run between two steps: what is fixed for its life, and what moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum

from services.chassis.identity import Principal
from services.orchestrator.domain.agent import Agent
from services.orchestrator.domain.events import PauseKind, PendingCall, ToolStatus
from services.orchestrator.domain.messages import (
    Budget,
    Message,
    OutputFormat,
    Sampling,
    Spent,
    ToolCall,
    ToolSpec,
)
from services.orchestrator.domain.run import OnRetraction
from services.orchestrator.evidence import EvidencePool


class Phase(IntEnum):
    """Where in a round a run stands. Numbers equal the continuation's."""

    ROUND_START = 1
    CALLS = 2
    CLOSING = 3
    PREPARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A call of the current round. `result` and `status` are set once it is settled.

    `announced` says that the journal tells of its request, so that it is not told again after a restart. A tool that
    asks the user in the middle of its work leaves its questions and the `tool_state` with which it goes on; `asks`
    counts them. `edited_json` are the arguments with which a person let it run.
    """

    call: ToolCall
    pause_kind: PauseKind | None = None
    arguments_digest: bytes = b""
    approval_id: str = ""
    deadline: datetime | None = None
    started: bool = False
    result: Message | None = None
    status: ToolStatus | None = None
    asked_at: datetime | None = None
    announced: bool = False
    questions_json: bytes = b""
    tool_state: bytes = b""
    asks: int = 0
    edited_json: bytes = b""

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a person or the caller."""
        return self.result is None and self.pause_kind is not None

    def settled(self, status: ToolStatus, result: Message) -> Pending:
        """Return it with its result."""
        return replace(self, status=status, result=result)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What is fixed for the life of a run and identical on every round."""

    run_id: str
    principal: Principal
    agent: Agent
    model: str
    budget: Budget
    conversation_id: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    output: OutputFormat = field(default_factory=OutputFormat)
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    sources: tuple[str, ...] = ()
    attachments: tuple[str, ...] = ()
    instructions: str = ""
    unattended: bool = False
    on_retraction: OnRetraction = OnRetraction.EMIT
    client_tools_end_run: bool = False
    answer_message_id: str = ""
    user_message_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRef:
    """Reference to a saved segment."""

    digest: bytes
    kind: str


@dataclass(slots=True, kw_only=True)
class Progress:
    """What moves while a run works. Only the leg that owns the run changes it.

    `messages` is what the model reads, `turn_start` the index of this turn's user message. `next_call_id` is the id
    that the next model call will have, known before it begins so that its text can be withdrawn. `saved_messages` and
    `saved_evidence` count what stands in `segments` already: the rest is written with the next checkpoint. `fixed` is
    the spec as the last checkpoint had it, encoded.
    `branches` are steps that work beside the run's own loop, by id: each has messages, calls and a place of its own,
    and shares the evidence.
    """

    messages: list[Message]
    turn_start: int = 0
    evidence: EvidencePool = field(default_factory=EvidencePool)
    spent: Spent = field(default_factory=Spent)
    round: int = 1
    phase: Phase = Phase.PREPARE
    pending: tuple[Pending, ...] = ()
    seen: set[bytes] = field(default_factory=set)
    unknown_tools: int = 0
    answer: str = ""
    asked_again: bool = False
    closing_reason: str = ""
    strategy: bytes = b""
    paused_at: datetime | None = None
    attempt: int = 1
    sequence: int = 0
    traceparent: str = ""
    next_call_id: str = ""
    segments: list[SegmentRef] = field(default_factory=list)
    saved_messages: int = 0
    saved_evidence: int = 0
    fixed: tuple[RunSpec, bytes] | None = None
    branches: dict[str, Progress] = field(default_factory=dict)

    def replace_messages(self, messages: Sequence[Message], turn_start: int) -> None:
        """Put other messages in place of all; the next checkpoint writes them anew."""
        self.messages = list(messages)
        self.turn_start = turn_start
        self.saved_messages = 0
        self.segments = [ref for ref in self.segments if ref.kind != "messages"]

    def settle(self, pending: Pending) -> None:
        """Put `pending` in the place of the call with its id."""
        self.pending = tuple(pending if p.call.call_id == pending.call.call_id else p for p in self.pending)

    @property
    def waiting(self) -> tuple[Pending, ...]:
        """Calls that wait for a person or the caller, those of branches too."""
        own = tuple(p for p in self.pending if p.is_waiting)
        return own + tuple(p for branch in self.branches.values() for p in branch.waiting)

    def pending_calls(self) -> tuple[PendingCall, ...]:
        """What the run waits for, as the journal tells it."""
        return tuple(
            PendingCall(
                call_id=p.call.call_id,
                kind=p.pause_kind or PauseKind.APPROVAL,
                approval_id=p.approval_id,
                tool=p.call.name,
            )
            for p in self.waiting
        )
