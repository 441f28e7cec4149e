"""The journal of one owned run: what the loop writes to.

Deltas are merged first and numbered when they are written; facts are numbered in their place and committed before
anyone sees them or `fact` returns. Numbers come from a block that was reserved durably, so that no later owner reuses
one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from services.orchestrator.codec_events import EventEncoder, kind_of, stamped
from services.orchestrator.domain.events import (
    AnswerDelta,
    Event,
    Fact,
    PendingCall,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    StageChanged,
    StampedEvent,
    Terminal,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallProgress,
    ToolCallStarted,
)
from services.orchestrator.domain.messages import Message, Usage
from services.orchestrator.domain.run import Checkpoint, Fenced, Run, RunCancelRequested, RunState
from services.orchestrator.domain.text import all_well_formed
from services.orchestrator.journal.feed import Tail
from services.orchestrator.journal.pending import Entry, Key, Queue, Text
from services.orchestrator.journal.ports import Ending, Ownership, RunWrite, WriteOutcome, WriteResult

# Characters of unwritten text from which on a source of text should wait for the writer.
CONGESTED = 1024 * 1024

_DELTAS = (AnswerDelta, ThinkingDelta, ToolCallDelta, ToolCallProgress)
_TERMINALS = {
    RunCompleted: RunState.COMPLETED,
    RunFailed: RunState.FAILED,
    RunCancelled: RunState.CANCELLED,
}
_log = logging.getLogger(__name__)


class InterruptKind(Enum):
    """Why a run's work must stop."""

    CANCEL_REQUESTED = "cancel_requested"
    OWNERSHIP_LOST = "ownership_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """Something outside the loop ends its work. `by` is who asked for the cancellation."""

    kind: InterruptKind
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A RunWrite on its way, with the entry it came from (None for texts).

    What comes after a `barrier` is shown once the barrier is committed.
    """

    write: RunWrite
    entry: Entry | None
    barrier: bool


class Haste(Enum):
    """How long what a run has to say may wait for more to be committed with it.

    PATIENT waits for the next commit of texts, SOON for a few turns of the loop, so that the work which said it goes
    first, NOW not at all: someone waits.
    """

    PATIENT = "patient"
    SOON = "soon"
    NOW = "now"


class Waker(Protocol):
    """The writer, as a journal sees it."""

    def now(self) -> datetime:
        """Return the time that events are stamped with."""
        ...

    def touched(self, journal: RunJournal, haste: Haste) -> None:
        """There is something to write."""
        ...


class RunJournal:
    """Writes one run. Made by `Journals`; not safe to use from another thread."""

    def __init__(
        self,
        ownership: Ownership,
        tail: Tail,
        writer: Waker,
        block: int,
        *,
        closed: Callable[[RunJournal], None],
    ) -> None:
        self.run: Run = ownership.run
        self.run_id: str = ownership.run.run_id
        self.epoch: int = ownership.epoch
        self.attempt: int = ownership.run.attempt
        self.taken_over: bool = ownership.taken_over
        self.tail = tail
        self._owner = ownership.owner
        self._writer = writer
        self._block = block
        self._on_closed = closed
        self._encoder = EventEncoder(self.run_id, self.attempt)
        # Whether texts are shown before the stages and checkpoints that stand before them are committed. Who takes the
        # run over must then withdraw, untold, what may have been seen.
        self.shows_early = False
        # Whether what is committed says already that the next model call begins; then its text may be shown early, too.
        # A checkpoint ends it: whoever takes the run over looks at what comes after.
        self.announced = False
        self._queue = Queue()
        # The last one that waits with a checkpoint which is still to be made.
        self._undrawn: Entry | None = None
        # What was shown before the writer came for it, and how many barriers are on their way.
        self._ready: list[Piece] = []
        self._barriers = 0
        self._last_text: Key | None = None
        self._last_sequence = ownership.run.last_sequence
        self._next = ownership.next_sequence
        self._reserved = ownership.reserved_until
        self._lost: Exception | None = None
        self._closed = False
        self._cancel_requested_by = ownership.run.cancel_requested_by
        self._on_interrupt: Callable[[Interrupt], None] | None = None

    # --- for the loop ------------------------------------------------------------------------------------------

    @property
    def last_sequence(self) -> int:
        """The last number given to an event, 0 before the first."""
        return self._last_sequence

    @property
    def is_open(self) -> bool:
        """Whether the run can still be written through this handle."""
        return self._lost is None and not self._closed

    @property
    def is_lost(self) -> bool:
        """Whether the run was taken from this handle, or the database kept away for too long."""
        return self._lost is not None

    @property
    def cancel_requested_by(self) -> str:
        """Who asked the run to stop, as far as this process knows; empty when nobody did."""
        return self._cancel_requested_by

    def delta(self, event: Event, step_id: str = "") -> None:
        """Record an event without waiting. Texts are merged and may be shown one flush before they are committed, as
        may stages where the run allows it; any other event is committed before it is shown, in its place, and its
        failure is only logged.

        After the run is lost or ended this does nothing: the loop learns it from `fact` or `when_interrupted`.
        """
        if not self.is_open:
            return
        if isinstance(event, _DELTAS):
            # What a model says changes the state only at its end, when what it said is told.
            self._draw()
            was_empty = not self._queue.items
            is_first = self._queue.add_text(event, step_id) != self._last_text
            if not is_first:
                if was_empty:
                    self._writer.touched(self, Haste.PATIENT)
            elif isinstance(event, ToolCallDelta):
                self._writer.touched(self, Haste.SOON)
            elif self._may_show_now():
                # The first piece of what people read goes out at once, what follows it gathers.
                self._ready = self.compose(self._writer.now())
                self._writer.touched(self, Haste.SOON)
            else:
                self._writer.touched(self, Haste.NOW)
            return
        if isinstance(event, ToolCallStarted | RunCompleted | RunFailed | RunCancelled):
            raise TypeError(f"{type(event).__name__} must be awaited: use fact, finish or begin_to_read")
        self._post(Entry(events=(all_well_formed(event),), step_id=step_id))

    @property
    def congested(self) -> bool:
        """Whether so much text waits that a source of text should `await settle()` before it adds more."""
        return self._queue.size > CONGESTED

    async def settle(self) -> None:
        """Return when everything recorded so far is committed."""
        await self.fact()

    async def fact(
        self,
        *events: Fact,
        step_id: str = "",
        checkpoint: Checkpoint | None = None,
        state: RunState | None = None,
        pending: tuple[PendingCall, ...] | None = None,
        usage: Usage | None = None,
        release: bool = False,
    ) -> None:
        """Commit `events` with what belongs to them in one transaction, after everything recorded before.

        None leaves checkpoint, state, pending calls and usage as they are. `release` hands the run back with it; the
        handle is closed then. A ToolCallStarted is refused with RunCancelRequested once someone asked the run to stop:
        nothing of this call is recorded. Raises Fenced when another owner has the run, StoreUnavailable when the
        database did not answer for as long as a lease lasts; the run is then no longer ours.
        """
        if any(isinstance(event, RunCompleted | RunFailed | RunCancelled) for event in events):
            raise TypeError("a terminal event ends the run: use finish")
        await self._commit(
            Entry(
                events=all_well_formed(events),
                step_id=step_id,
                guarded=any(isinstance(event, ToolCallStarted) for event in events),
                checkpoint=checkpoint,
                state=state,
                pending=pending,
                usage=usage,
                release=release,
            )
        )

    def save(self, checkpoint: Checkpoint, *events: Fact, step_id: str = "") -> None:
        """Record `events` with a checkpoint without waiting: for state that a crash may cost, since it is made again.

        Later facts are committed after it, so whoever awaits one of those has this too.
        """
        if self.is_open:
            self._post(Entry(events=all_well_formed(events), step_id=step_id, checkpoint=checkpoint))

    def save_soon(self, draw: Callable[[], Checkpoint], *events: Fact, step_id: str = "") -> None:
        """Do as `save` does, but leave it for a moment to the commit that probably comes next.

        `draw` returns the checkpoint and is called when that commit begins or the next text comes, and not at all when
        a later checkpoint is committed with it. The work goes on meanwhile, and may send a model's request: wherever it
        waits, its state fits what it has recorded, for steps side by side are saved in the middle of each other.
        """
        if self.is_open:
            self._post(Entry(events=all_well_formed(events), step_id=step_id, draw=draw), Haste.PATIENT)

    def begin_to_read(self, event: ToolCallStarted, step_id: str = "") -> None:
        """Record without waiting that a call begins which only reads: whether it began makes no difference later.

        Raises what `fact` raises of the run, as far as this process knows.
        """
        self._check_open()
        if self._cancel_requested_by:
            raise RunCancelRequested(self.run_id, self._cancel_requested_by)
        self._post(Entry(events=(all_well_formed(event),), step_id=step_id))

    def resumed(self, event: RunResumed) -> None:
        """Record that the run goes on, with the commit that comes next.

        Nothing after it is shown, or awaited, before it is committed.
        """
        if self.is_open:
            self._post(Entry(events=(event,), state=RunState.RUNNING, pending=()), Haste.PATIENT)

    async def finish(
        self,
        event: Terminal,
        *,
        messages: Sequence[Message] = (),
        tool_memory: bytes | None = None,
        step_id: str = "",
    ) -> None:
        """Commit the terminal event, the conversation's new messages and the run's end in one transaction.

        `messages` are what this turn adds after the user's message, in order; `tool_memory` replaces what tools
        remember in the conversation. The run's usage is the event's. The handle is closed then. Raises as `fact` does.
        """
        failure = event.reason if isinstance(event, RunFailed) else ""
        await self._commit(
            Entry(
                events=(all_well_formed(event),),
                step_id=step_id,
                state=_TERMINALS[type(event)],
                usage=event.usage,
                ending=Ending(messages=tuple(messages), tool_memory=tool_memory, failure=failure),
                release=True,
            )
        )

    async def hand_back(self, checkpoint: Checkpoint | None = None) -> None:
        """Give the run up in good order, so that any replica may go on at once; the attempt does not count."""
        await self._commit(Entry(checkpoint=checkpoint, release=True))

    def give_up(self) -> None:
        """Stop leading the run without a word to the database, when it cannot be handed back or ended.

        Its lease is renewed as long as this handle is open, so whoever stops working on a run must close it: by
        `finish`, by a release, or by this. The run is taken over once its lease ends. Does nothing on a closed handle.
        """
        self.lose(Fenced(self.run_id, self.epoch))

    def when_interrupted(self, stop: Callable[[Interrupt], None]) -> None:
        """Have `stop` called, once and soon, when the run's work must stop or must already.

        Someone asked for it, or the run is no longer ours.
        """
        self._on_interrupt = stop
        if self._lost is not None:
            self._wake(Interrupt(kind=InterruptKind.OWNERSHIP_LOST))
        elif self._cancel_requested_by:
            self._wake(Interrupt(kind=InterruptKind.CANCEL_REQUESTED, by=self._cancel_requested_by))

    # --- for the writer ----------------------------------------------------------------------------------------

    def _post(self, entry: Entry, haste: Haste = Haste.SOON) -> None:
        if entry.checkpoint is not None or entry.draw is not None:
            self.announced = False
            # One that may be refused replaces none.
            if not entry.guarded:
                self._replace_undrawn(entry)
        self._queue.items.append(entry)
        self._writer.touched(self, haste)

    def _replace_undrawn(self, entry: Entry) -> None:
        """Make one checkpoint where two would be committed together."""
        if self._undrawn is not None:
            self._undrawn.draw = None
        self._undrawn = entry

    def _draw(self) -> None:
        if self._undrawn is not None:
            self._undrawn.drawn()
            self._undrawn = None

    def _check_open(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._closed:
            raise Fenced(self.run_id, self.epoch)

    async def _commit(self, entry: Entry) -> None:
        self._check_open()
        entry.done = asyncio.get_running_loop().create_future()
        self._post(entry, Haste.NOW)
        await entry.done

    def _may_show_now(self) -> bool:
        """Return whether all that waits may be shown at once, instead of after the commit that is under way."""
        *_, last = self._queue.items
        if isinstance(last, Text) and last.ends_within_a_character:
            return False
        return not self._barriers and not self._ready and not any(map(self._is_hard, self._queue.items))

    def _is_hard(self, item: Text | Entry) -> bool:
        """Return whether nothing may be shown, from the item on, before it is committed."""
        if isinstance(item, Text):
            return False
        if not (self.shows_early or self.announced):
            return True
        return item.done is not None or not all(isinstance(event, StageChanged) for event in item.events)

    @property
    def has_only_waiting(self) -> bool:
        """Whether something waits, and nothing that was composed before it is still to be written."""
        return self.is_open and bool(self._queue.items) and not self._ready and not self._barriers

    def keep_ready(self, pieces: list[Piece]) -> None:
        """Keep what was composed ahead of its turn; the next `compose` begins with it."""
        self._ready = pieces

    def compose(self, now: datetime) -> list[Piece]:
        """Number and encode everything that waits. Texts that may be shown before they are committed are shown."""
        items, ready = self._queue.take(), self._ready
        self._ready = []
        try:
            return ready + self._pieces(items, now)
        except Exception as error:
            for piece in ready:
                if piece.entry is not None:
                    _fail(piece.entry, error)
            for item in items:
                if isinstance(item, Entry):
                    _fail(item, error)
            raise

    def _pieces(self, items: Sequence[Text | Entry], now: datetime) -> list[Piece]:
        pieces: list[Piece] = []
        texts: list[StampedEvent] = []
        # What is awaited is committed at once: the text before it is shown with it, in one message.
        together = any(isinstance(item, Entry) and item.done is not None for item in items)
        for item in items:
            if isinstance(item, Text):
                texts.append(self._stamp(item.joined(), item.step_id, now))
                self._last_text = item.key
                continue
            if texts:
                pieces.append(self._piece(tuple(texts), together=together))
                texts = []
            self._last_text = None
            if piece := self._entry_piece(item, now):
                pieces.append(piece)
        if texts:
            pieces.append(self._piece(tuple(texts), together=together))
        return pieces

    def _piece(self, events: tuple[StampedEvent, ...], entry: Entry | None = None, *, together: bool = False) -> Piece:
        """Return what is to be written, shown already when it may be and is not to be shown `together` with more."""
        barrier = together or self._barriers > 0 or (entry is not None and self._is_hard(entry))
        if events and not barrier:
            if events[-1].sequence <= self._reserved:
                self.tail.publish(events)
            else:
                barrier = True
        self._barriers += barrier
        return Piece(write=self._write(events, entry), entry=entry, barrier=barrier)

    def _entry_piece(self, entry: Entry, now: datetime) -> Piece | None:
        first = self._next
        try:
            events = tuple(self._stamp(event, entry.step_id, now) for event in entry.events)
        except (TypeError, ValueError) as error:
            # One event that cannot be encoded fails its own call, not the run's other writes.
            self._next = first
            _fail(entry, error)
            return None
        return self._piece(events, entry)

    def _stamp(self, event: Event, step_id: str, now: datetime) -> StampedEvent:
        sequence = self._next
        payload = self._encoder.encode(event, sequence=sequence, at=now, step_id=step_id)
        self._next += 1
        self._last_sequence = sequence
        return stamped(sequence, kind_of(event), payload)

    def _write(self, events: tuple[StampedEvent, ...], entry: Entry | None = None) -> RunWrite:
        last = self._next - 1
        short = last + self._block // 2 > self._reserved
        entry = entry or Entry()
        return RunWrite(
            run_id=self.run_id,
            owner=self._owner,
            epoch=self.epoch,
            last_sequence=last if events else 0,
            reserved_until=last + self._block if short else self._reserved,
            events=events,
            guarded=entry.guarded,
            checkpoint=entry.drawn(),
            state=entry.state,
            pending=entry.pending,
            usage=entry.usage,
            ending=entry.ending,
            release=entry.release,
            awaited=entry.done is not None,
        )

    def settled(self, piece: Piece, result: WriteResult) -> None:
        """Take the outcome of a piece: show what was committed, and tell who waits."""
        self._barriers -= piece.barrier
        if result.cancel_requested_by:
            self.cancel_noted(result.cancel_requested_by)
        match result.outcome:
            case WriteOutcome.WRITTEN:
                self._written(piece)
            case WriteOutcome.CANCEL_REQUESTED:
                if piece.entry is not None:
                    _fail(piece.entry, RunCancelRequested(self.run_id, result.cancel_requested_by))
            case WriteOutcome.FENCED:
                self.lose(Fenced(self.run_id, self.epoch))
                if piece.entry is not None:
                    _fail(piece.entry, Fenced(self.run_id, self.epoch))

    def _written(self, piece: Piece) -> None:
        self._reserved = max(self._reserved, piece.write.reserved_until)
        if not piece.write.release:
            # Whoever works on comes before who reads: what is asked or called next should not wait for the showing.
            self._tell(piece)
        shown = self.tail.last_sequence
        unseen = [event for event in piece.write.events if event.sequence > shown]
        if unseen:
            self.tail.publish(unseen)
        if piece.write.release:
            # A leg that is stopped while it pauses hands the run back behind the pause: it was given up already then.
            was_closed, self._closed = self._closed, True
            # One that was lost meanwhile has closed it, and whoever leads the run now may have opened it again.
            if piece.write.ending is None and not self.is_lost and not was_closed:
                self.tail.hand_on()
            if not was_closed:
                self._on_closed(self)
            self._tell(piece)

    def _tell(self, piece: Piece) -> None:
        """Tell who waits for the piece that it is committed."""
        if piece.entry is not None and piece.entry.done is not None and not piece.entry.done.done():
            piece.entry.done.set_result(self._last_sequence)

    def failed(self, piece: Piece, error: Exception) -> None:
        """Take a failure of the store: what was shown may not be kept, so the run is not ours any more."""
        self._barriers -= piece.barrier
        self.lose(error)
        if piece.entry is not None:
            _fail(piece.entry, error)

    def cancel_noted(self, by: str) -> None:
        """Someone asked the run to stop."""
        if not self._cancel_requested_by:
            self._cancel_requested_by = by
            self._wake(Interrupt(kind=InterruptKind.CANCEL_REQUESTED, by=by))

    def lose(self, error: Exception) -> None:
        """The run is not ours any more: refuse what waits and everything later."""
        if not self.is_open:
            return
        self._lost = error
        self.tail.close()
        waiting = [*(piece.entry for piece in self._ready), *self._queue.take()]
        self._ready = []
        for item in waiting:
            if isinstance(item, Entry):
                _fail(item, error)
        self._wake(Interrupt(kind=InterruptKind.OWNERSHIP_LOST))
        self._on_closed(self)

    def _wake(self, interrupt: Interrupt) -> None:
        if self._on_interrupt is not None:
            asyncio.get_running_loop().call_soon(self._on_interrupt, interrupt)
            self._on_interrupt = None


def _fail(entry: Entry, error: Exception) -> None:
    if entry.done is None:
        _log.warning("an event was not recorded", extra={"event": "journal_event_dropped"}, exc_info=error)
    elif not entry.done.done():
        entry.done.set_exception(error)
