"""What the journal needs of a database, and what it hands over. One adapter serves SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from services.chassis.errors import Unavailable
from services.orchestrator.domain.events import PendingCall, StampedEvent
from services.orchestrator.domain.messages import Message, Usage
from services.orchestrator.domain.run import Checkpoint, NewRun, Run, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """How this process owns runs.

    `owner` is unique per process start. `duration` counts in the database's time. `block` is how many sequence numbers
    are reserved ahead. `reader` is the newest continuation version this process can read.
    """

    owner: str
    duration: timedelta = timedelta(seconds=10)
    block: int = 256
    reader: int = 1

    @property
    def milliseconds(self) -> int:
        """`duration` as the database counts it."""
        return int(self.duration.total_seconds() * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """A run that this process may write, until another epoch begins.

    Sequence numbers `next_sequence`..`reserved_until` are this owner's: they are above anything ever shown.
    `run.attempt` counts this attempt. `taken_over` says that the previous owner did not hand the run back.
    """

    run: Run
    owner: str
    epoch: int
    next_sequence: int
    reserved_until: int
    taken_over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Outcome of `admit`: a new run with its ownership, or the run that the request started before.

    `tool_memory` is what the tools remember in its conversation.
    """

    run: Run
    ownership: Ownership | None
    tool_memory: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """The last checkpoint of a run: everything needed to go on. `segments` maps digests to contents.

    `epoch` is the run's when this was read: whoever claims the run with the next one has what was saved last.
    `tool_memory` is what the tools remember in its conversation.
    """

    head: bytes
    segments: Mapping[bytes, bytes]
    epoch: int = 0
    tool_memory: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What the terminal transaction writes beside the event: the conversation's part of the run."""

    messages: tuple[Message, ...] = ()
    tool_memory: bytes | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWrite:
    """One atomic piece of one run's journal. None leaves a column as it is.

    `guarded` pieces (a tool's start) are refused once cancellation was asked for; their segments are kept all the same,
    since they are immutable and a later head may refer to them. One that is `awaited` has to outlive a failure of the
    machine when `write` returns; whoever waits for it does something then that must not be forgotten.
    """

    run_id: str
    owner: str
    epoch: int
    last_sequence: int
    reserved_until: int
    events: tuple[StampedEvent, ...] = ()
    guarded: bool = False
    checkpoint: Checkpoint | None = None
    state: RunState | None = None
    pending: tuple[PendingCall, ...] | None = None
    usage: Usage | None = None
    ending: Ending | None = None
    release: bool = False
    awaited: bool = True


class WriteOutcome(Enum):
    """What became of one RunWrite."""

    WRITTEN = "written"
    FENCED = "fenced"
    CANCEL_REQUESTED = "cancel_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """Outcome of one RunWrite. `cancel_requested_by` is set as soon as anyone asked, whatever the outcome."""

    outcome: WriteOutcome
    cancel_requested_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """A lease still held, and who asked the run to stop, if anyone."""

    run_id: str
    epoch: int
    cancel_requested_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """The part of a run's row that a reader of its events needs."""

    state: RunState
    last_sequence: int
    oldest_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCursor:
    """The last row of a page of runs, newest first."""

    created_at: datetime
    run_id: str


class StoreUnavailable(Unavailable):
    """The database does not answer at the moment; whether the last transaction took effect is unknown."""


class EventLog(Protocol):
    """Reading side of the journal."""

    async def status(self, run_id: str) -> RunStatus:
        """Return where the run stands, or raise RunNotFound."""
        ...

    async def events(self, run_id: str, after: int, *, limit: int, max_bytes: int) -> Sequence[StampedEvent]:
        """Return committed events after `after` in order: at most `limit`, and `max_bytes` unless one alone is larger.

        Raises EventsPruned when events after `after` are no longer kept.
        """
        ...


class RunStore(EventLog, Protocol):
    """Runs, their events and their saved state. Every method is one transaction."""

    async def admit(self, new: NewRun, terms: LeaseTerms) -> Admission:
        """Insert the run, its first checkpoint and its user message, owned by `terms.owner` with epoch and attempt 1.

        A request id used before by the same tenant and user returns that run without ownership, or raises
        RequestIdReused when the digest differs. Raises ConversationNotFound, ConversationBusy, MessageNotFound,
        QuotaExceeded. A conversation that does not exist is made when `new.title` is set.
        """
        ...

    async def get(self, tenant: str, run_id: str) -> Run:
        """Return the run, or raise RunNotFound when it never existed, is another tenant's or has expired."""
        ...

    async def find(self, run_id: str) -> Run:
        """Return the run whatever its tenant, for work that no caller asked for; raise RunNotFound."""
        ...

    async def list(
        self,
        tenant: str,
        user: str,
        *,
        states: Sequence[RunState] = (),
        conversation_id: str = "",
        limit: int = 50,
        after: RunCursor | None = None,
    ) -> Sequence[Run]:
        """Return the user's runs, newest first, those after the cursor."""
        ...

    async def parked(self, *, limit: int = 100, after: str = "") -> Sequence[Run]:
        """Return paused runs that nobody owns, of all tenants, by run id from `after` on: for the reconcile loop."""
        ...

    async def orphans(self, *, limit: int = 100, reader: int = 1) -> Sequence[Run]:
        """Return working runs whose lease has ended or was handed back, of all tenants, longest waiting first."""
        ...

    async def load_checkpoint(self, run_id: str) -> SavedState:
        """Return the last checkpoint, or raise RunNotFound."""
        ...

    async def claim(self, run_id: str, terms: LeaseTerms) -> Ownership | None:
        """Take an unowned run or one whose lease has ended; None when it is owned, terminal or too new for us.

        The epoch rises by one, so every write of an earlier owner is refused from then on; the attempt rises when the
        earlier owner had not handed the run back.
        """
        ...

    async def renew(self, held: Mapping[str, int], terms: LeaseTerms) -> Sequence[Renewal]:
        """Extend the leases of `held` (run id → epoch); those missing from the answer are lost."""
        ...

    async def release(self, run_id: str, owner: str, epoch: int) -> bool:
        """Hand the run back; False when it was not ours any more."""
        ...

    async def write(self, batch: Sequence[RunWrite], terms: LeaseTerms) -> Sequence[WriteResult]:
        """Commit all pieces in one transaction and extend the leases; one result for each, in order.

        Each piece is checked against the run's owner and epoch under the row's lock. Repeating a batch whose outcome
        was unknown is safe. Raises StoreUnavailable.
        """
        ...

    async def request_cancel(self, tenant: str, run_id: str, by: str) -> Run:
        """Record that the run shall stop and return it as it is then; a terminal run stays as it is."""
        ...

    async def prune_events(self, finished_before: datetime, *, limit: int = 100) -> int:
        """Drop events but the terminal one, and saved state, of runs that ended before; return how many runs."""
        ...

    async def delete_runs(self, finished_before: datetime, *, limit: int = 100) -> int:
        """Delete runs that ended before, events included, never their conversations; return how many."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSignal:
    """Something happened to a run, perhaps in another process: read it again. An empty `run_id` means any run.

    `for_owner` says that its owner is concerned: someone asked it to stop, or took it over.
    """

    run_id: str
    for_owner: bool = False


class Signals(Protocol):
    """Hears of changes made by other processes. A hint only: readers also poll."""

    async def listen(self, heard: Callable[[RunSignal], None]) -> None:
        """Call `heard` for each signal until cancelled; reconnects by itself."""
        ...
