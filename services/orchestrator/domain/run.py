"""A run's record and the failures that name it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum

import grpc

from services.chassis.errors import ServiceError
from services.orchestrator.domain.events import PendingCall, StampedEvent
from services.orchestrator.domain.messages import Message, Usage


class RunState(IntEnum):
    """State of a run. Numbers equal the proto's."""

    QUEUED = 1
    RUNNING = 2
    PAUSED = 3
    COMPLETED = 4
    FAILED = 5
    CANCELLED = 6

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can follow."""
        return self in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)


class OnDisconnect(IntEnum):
    """What a lost client means for the run that it started."""

    CONTINUE = 1
    CANCEL = 2


class OnRetraction(IntEnum):
    """What happens to text that must be withdrawn."""

    EMIT = 1
    FAIL = 2
    HOLD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run as its row tells it."""

    run_id: str
    tenant: str
    user: str
    state: RunState
    agent_id: str
    agent_name: str
    agent_version: int
    model: str
    created_at: datetime
    updated_at: datetime
    conversation_id: str = ""
    request_id: str = ""
    finished_at: datetime | None = None
    last_sequence: int = 0
    oldest_sequence: int = 1
    pending: tuple[PendingCall, ...] = ()
    attempt: int = 1
    usage: Usage = field(default_factory=Usage)
    question: str = ""
    failure: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    trace_id: str = ""
    cancel_requested_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """What admits a run: its row, the digest of its request, the first checkpoint, and the user's message to keep.

    `request_digest` is SHA-256 over the request; the same request id with another digest is refused. The run belongs
    to a conversation when `run.conversation_id` is set; `title` names one that does not exist yet, and the message
    `supersede_message_id` and all after it are superseded by this run. `reserved_tokens` counts against the quotas
    until the run ends. `events` are its first, numbered from 1.
    """

    run: Run
    request_digest: str
    checkpoint: Checkpoint
    user_message: Message | None
    title: str = ""
    supersede_message_id: str = ""
    key_id: str = ""
    reserved_tokens: int = 0
    events: tuple[StampedEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """An immutable piece of saved state, addressed by the SHA-256 of its bytes."""

    digest: bytes
    kind: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """An encoded Continuation and the segments that are new since the last one."""

    head: bytes
    min_reader: int
    new_segments: tuple[Segment, ...] = ()


class RunNotFound(ServiceError):
    """The run never existed, is another tenant's, or has expired."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "RUN_NOT_FOUND"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run '{run_id}' does not exist; list runs to find the right id", metadata={"run_id": run_id})


class RequestIdReused(ServiceError):
    """The same request id came with another body."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "REQUEST_ID_REUSED"

    def __init__(self, request_id: str, run_id: str) -> None:
        super().__init__(
            f"request id '{request_id}' was used with another body for run '{run_id}'; use a new id",
            metadata={"request_id": request_id, "run_id": run_id},
        )


class EventsPruned(ServiceError):
    """The cursor is older than what is kept."""

    code = grpc.StatusCode.OUT_OF_RANGE
    reason = "EVENTS_PRUNED"

    def __init__(self, run_id: str, after: int, oldest: int) -> None:
        super().__init__(
            f"events of run '{run_id}' after {after} are no longer kept; the oldest is {oldest}",
            metadata={"run_id": run_id, "oldest": str(oldest)},
        )


class Fenced(ServiceError):
    """Another owner has the run; this write was refused."""

    code = grpc.StatusCode.ABORTED
    reason = "FENCED"

    def __init__(self, run_id: str, epoch: int) -> None:
        super().__init__(f"run '{run_id}' is no longer owned with epoch {epoch}", metadata={"run_id": run_id})


class RunCancelRequested(Exception):
    """Someone asked the run to stop, so what was to be recorded (a tool's start) was not. A signal, not a failure."""

    def __init__(self, run_id: str, by: str) -> None:
        super().__init__(f"run '{run_id}' was asked to stop by '{by}'")
        self.run_id = run_id
        self.by = by


class RunNotPaused(ServiceError):
    """There is nothing to resume or decide."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "RUN_NOT_PAUSED"

    def __init__(self, run_id: str, state: RunState) -> None:
        super().__init__(
            f"run '{run_id}' is {state.name.lower()}, not paused; watch it instead",
            metadata={"run_id": run_id, "state": state.name.lower()},
        )


class KeyEnded(ServiceError):
    """The key that a run was started with was revoked while it waited."""

    code = grpc.StatusCode.PERMISSION_DENIED
    reason = "KEY_REVOKED"

    def __init__(self, run_id: str, key_id: str) -> None:
        super().__init__(
            f"the key '{key_id}' that run '{run_id}' was started with was revoked; start it again with another key",
            metadata={"run_id": run_id, "key_id": key_id},
        )


class DecisionMissing(ServiceError):
    """The run still waits for decisions."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "DECISION_MISSING"

    def __init__(self, run_id: str, call_ids: tuple[str, ...]) -> None:
        super().__init__(
            f"run '{run_id}' is paused for {', '.join(repr(c) for c in call_ids)}; decide first",
            metadata={"run_id": run_id, "pending": ",".join(call_ids)},
        )
