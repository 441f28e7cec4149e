"""The runs that this replica works on: started, taken up, cancelled, drained. Every task is owned here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from services.chassis import names
from services.chassis.clock import Clock, Ids
from services.orchestrator.codec_recovery import call_had_begun
from services.orchestrator.continuation import ContinuationCorrupt, ContinuationTooNew, decode, encode
from services.orchestrator.dedup import ConversationMemory
from services.orchestrator.domain.events import AnswerRetracted, RunFailed
from services.orchestrator.domain.run import OnRetraction
from services.orchestrator.domain.state import Phase, Progress, RunSpec
from services.orchestrator.journal.journal import Interrupt, InterruptKind, RunJournal
from services.orchestrator.journal.journals import Journals
from services.orchestrator.journal.ports import RunStore, StoreUnavailable
from services.orchestrator.ports import ApprovalRecord, RecordState
from services.orchestrator.runner import LegEnd, Runner, Start, Stop, StopReason
from services.orchestrator.slots import FairSlots

_log = logging.getLogger(__name__)
# Where the next thing a run or a step does is to call the model.
_SPEAKING = (Phase.ROUND_START, Phase.CLOSING)
NO_RECORDS: Mapping[str, ApprovalRecord] = {}
# Turns of the event loop until a decision is sent; what is read beside it should not hold it up.
SENDING = 8
_INTERRUPTED = "The service was interrupted; the answer starts again."


@dataclass(slots=True, kw_only=True)
class _Job:
    """A leg at work. `told` says that something it may wait for was decided meanwhile."""

    task: asyncio.Task[None]
    stop: Stop
    started: bool = False
    told: bool = False


@dataclass(slots=True, kw_only=True)
class _Expected:
    """A run that is about to be taken up, and its state as it is being read."""

    saved: asyncio.Task[_Saved]
    told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """What a leg begins with. Progress is changed by the leg, so this serves one."""

    epoch: int
    spec: RunSpec
    progress: Progress
    memory: ConversationMemory


class Workforce:
    """Leads the runs this replica owns. `max_attempts` owners may die of a run before it is failed."""

    def __init__(
        self,
        *,
        runner: Runner,
        store: RunStore,
        journals: Journals,
        slots: FairSlots,
        clock: Clock,
        ids: Ids,
        max_attempts: int = 5,
    ) -> None:
        self._runner = runner
        self._store = store
        self._journals = journals
        self._slots = slots
        self._clock = clock
        self._ids = ids
        self._max_attempts = max_attempts
        self._jobs: dict[str, _Job] = {}
        self._expected: dict[str, _Expected] = {}
        self._draining = False
        # Told the id of each run that is parked here and may be decided already; the reconciler looks at it at once.
        self.parked: Callable[[str], None] = _nobody
        # Told of each run that ended with an answer here.
        self.completed: Callable[[RunSpec, Progress], None] = _nobody

    @property
    def active(self) -> int:
        """Legs at work or queued here."""
        return len(self._jobs)

    def begin(
        self,
        journal: RunJournal,
        spec: RunSpec,
        progress: Progress,
        start: Start,
        memory: ConversationMemory,
    ) -> None:
        """Lead a run that this replica owns, in a task of its own."""
        journal.shows_early = spec.on_retraction is not OnRetraction.FAIL
        journal.announced = start.announced
        stop = Stop()
        work = self._work(journal, spec, progress, start, stop, memory)
        task = asyncio.create_task(work, name=f"run {spec.run_id}")
        self._jobs[spec.run_id] = _Job(task=task, stop=stop)

    @asynccontextmanager
    async def expecting(self, run_id: str) -> AsyncIterator[None]:
        """Read the state of a parked run that will be taken up in this block, while its decision is on its way.

        Others who hear of the decision meanwhile leave the run to us.
        """
        if run_id in self._expected or run_id in self._jobs:
            yield
            return
        saved = asyncio.create_task(self._saved_soon(run_id), name=f"saved state of {run_id}")
        expected = self._expected[run_id] = _Expected(saved=saved)
        try:
            yield
        finally:
            del self._expected[run_id]
            saved.cancel()
            await asyncio.wait({saved})
            if not saved.cancelled():
                saved.exception()  # seen: whoever takes the run up reads again
            if expected.told and run_id not in self._jobs:
                self.parked(run_id)

    def heard(self, run_id: str) -> bool:
        """Note that something a run may wait for was decided; False when it is neither at work nor expected here."""
        here = self._jobs.get(run_id) or self._expected.get(run_id)
        if here is None:
            return False
        here.told = True
        return True

    async def take_up(self, run_id: str, cause: str, records: Mapping[str, ApprovalRecord] = NO_RECORDS) -> bool:
        """Claim a parked or orphaned run and lead it on; False when another has it or it has ended.

        `records` are those of its requests that the caller has read, by id; the gate asks for the others.
        """
        if self._is_draining() or run_id in self._jobs:
            return False
        journal = await self._journals.claim(run_id)
        if journal is None:
            return False
        try:
            # What is decided stays decided; what was pending may be decided by now.
            decided = {key: record for key, record in records.items() if record.state is not RecordState.PENDING}
            return await self._go_on(journal, run_id, Start(cause=cause, decided=decided))
        except BaseException:
            # An open journal is renewed for ever: without this nobody would lead the run, here or elsewhere.
            journal.give_up()
            raise

    async def _go_on(self, journal: RunJournal, run_id: str, start: Start) -> bool:
        """Lead a claimed run on from its checkpoint, or end it when that cannot be."""
        try:
            saved = await self._saved_before(journal)
        except (ContinuationCorrupt, ContinuationTooNew) as error:
            await self._give_up(journal, error.reason, error.message)
            return True
        spec, progress = saved.spec, saved.progress
        progress.attempt = journal.attempt
        if journal.attempt > self._max_attempts:
            text = f"The run lost its owner {self._max_attempts} times and is not tried again."
            await self._give_up(journal, "ATTEMPTS_EXHAUSTED", text)
            return True
        if journal.taken_over:
            _log.warning("run recovered", extra={"event": names.EVENT_RUN_RECOVERED, "run_id": run_id})
        if start.cause == "recovery" and not await self._retract(journal, spec, progress):
            return True
        if self._is_draining():  # it may have begun while we loaded
            await journal.hand_back()
            return False
        self.begin(journal, spec, progress, start, saved.memory)
        return True

    async def _saved_before(self, journal: RunJournal) -> _Saved:
        """Return the state that a claimed run was left in, from what was read before when that is still it."""
        if expected := self._expected.get(journal.run_id):
            reading = expected.saved
            await asyncio.wait({reading})
            if not reading.cancelled() and not reading.exception() and reading.result().epoch + 1 == journal.epoch:
                return reading.result()
        return await self._saved(journal.run_id)

    async def _saved_soon(self, run_id: str) -> _Saved:
        for _ in range(SENDING):
            await asyncio.sleep(0)
        return await self._saved(run_id)

    async def _saved(self, run_id: str) -> _Saved:
        state = await self._store.load_checkpoint(run_id)
        spec, progress = decode(state.head, state.segments)
        memory = ConversationMemory.decode(state.tool_memory)
        return _Saved(epoch=state.epoch, spec=spec, progress=progress, memory=memory)

    async def _retract(self, journal: RunJournal, spec: RunSpec, progress: Progress) -> bool:
        """Withdraw what the dead owner had shown of an unfinished call; False when the run may not go on then."""
        for step_id, step in progress.branches.items():
            # What a step says is no part of the answer, so no policy speaks of it.
            if step.phase in _SPEAKING and step.next_call_id:
                await self._withdraw(journal, spec, progress, step, step_id)
        if not await self._may_have_spoken(journal, spec, progress):
            return True
        if spec.on_retraction is OnRetraction.FAIL:
            text = "The service was interrupted in the middle of the answer; start the run again."
            await self._give_up(journal, "UNAVAILABLE", text, partial=progress.answer, retryable=True)
            return False
        await self._withdraw(journal, spec, progress, progress)
        return True

    async def _may_have_spoken(self, journal: RunJournal, spec: RunSpec, progress: Progress) -> bool:
        """Return whether someone may have seen text of the call that the checkpoint announces.

        Where text is shown before what stands before it is committed, a dead owner left no word of it.
        """
        if progress.phase is Phase.CALLS:
            return False
        if journal.taken_over and spec.on_retraction is not OnRetraction.FAIL:
            return True
        return await call_had_begun(self._store, spec.run_id, progress.sequence)

    async def _withdraw(
        self, journal: RunJournal, spec: RunSpec, progress: Progress, speaker: Progress, step_id: str = ""
    ) -> None:
        """Withdraw the text of the call that `speaker`, the run or one of its steps, had announced."""
        withdrawn = AnswerRetracted(model_call_id=speaker.next_call_id, reason=_INTERRUPTED)
        speaker.next_call_id = self._ids.new()
        progress.sequence = journal.last_sequence
        await journal.fact(withdrawn, checkpoint=encode(spec, progress, self._clock.now()), step_id=step_id)

    async def _give_up(
        self, journal: RunJournal, reason: str, message: str, *, partial: str = "", retryable: bool = False
    ) -> None:
        event = RunFailed(reason=reason, message=message, retryable=retryable, partial_text=partial)
        await journal.finish(event)

    async def _work(
        self,
        journal: RunJournal,
        spec: RunSpec,
        progress: Progress,
        start: Start,
        stop: Stop,
        memory: ConversationMemory,
    ) -> None:
        tenant = spec.principal.tenant
        queued_at = self._clock.monotonic()
        self._jobs[spec.run_id].started = True
        journal.when_interrupted(partial(self._told, spec.run_id, stop))
        end = LegEnd.FENCED
        try:
            end = await self._lead(journal, spec, progress, start, stop, tenant, queued_at, memory)
        except StoreUnavailable as error:
            # Its lease ends, and then another owner, or this one, goes on from the last checkpoint.
            _log.warning("the run cannot be written and is left: %s", error, extra={"run_id": spec.run_id})
        finally:
            job = self._jobs.pop(spec.run_id, None)
            # Closed already when the leg wrote its end; else another replica, or this one, takes the run up again.
            journal.give_up()
        match end:
            case LegEnd.PAUSED if job is not None and job.told:
                self.parked(spec.run_id)
            case LegEnd.COMPLETED:
                self.completed(spec, progress)
            case _:
                pass

    def _told(self, run_id: str, stop: Stop, interrupt: Interrupt) -> None:
        """Stop the leg because the journal says so: someone asked for it, or another owner has the run."""
        job = self._jobs.get(run_id)
        if job is None or job.stop is not stop:
            return  # the leg has ended
        match interrupt.kind:
            case InterruptKind.CANCEL_REQUESTED:
                self._interrupt(run_id, StopReason.CANCEL, interrupt.by)
            case InterruptKind.OWNERSHIP_LOST:
                self._interrupt(run_id, StopReason.FENCED, "")

    async def _lead(
        self,
        journal: RunJournal,
        spec: RunSpec,
        progress: Progress,
        start: Start,
        stop: Stop,
        tenant: str,
        queued_at: float,
        memory: ConversationMemory,
    ) -> LegEnd:
        has_slot = await self._acquire(tenant, stop)
        try:
            waited = timedelta(seconds=self._clock.monotonic() - queued_at)
            start = replace(start, queued=waited)
            return await self._runner.lead(journal, spec, progress, memory, start, stop)
        finally:
            if has_slot:
                self._slots.release(tenant)

    async def _acquire(self, tenant: str, stop: Stop) -> bool:
        """Wait for a slot; False when the leg is stopped meanwhile, which it then writes without one."""
        try:
            if stop.reason is None:
                await self._slots.acquire(tenant)
                return True
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if stop.reason is None or task is None:
                raise
            task.uncancel()
        return False

    def cancel(self, run_id: str, by: str) -> bool:
        """Stop a leg at work here because someone asked for it; False when it is not here."""
        return self._interrupt(run_id, StopReason.CANCEL, by)

    def _interrupt(self, run_id: str, reason: StopReason, by: str) -> bool:
        job = self._jobs.get(run_id)
        if job is None:
            return False
        if job.stop.reason is None:
            job.stop.reason, job.stop.by = reason, by
            # A task that has not begun would be cancelled without writing anything; it looks at `stop` first.
            if job.started:
                job.task.cancel()
        return True

    async def cancel_parked(self, run_id: str, by: str) -> None:
        """End a run that nobody works on: it is taken up only to write that it was cancelled."""
        if await self.take_up(run_id, "decision"):
            self.cancel(run_id, by)

    async def fail_parked(self, run_id: str, code: str, message: str) -> None:
        """End a run that waited and may not go on, which withdraws what it still waits for."""
        if await self.take_up(run_id, "decision"):
            job = self._jobs[run_id]
            job.stop.code, job.stop.message = code, message
            self._interrupt(run_id, StopReason.REFUSED, "")

    def _is_draining(self) -> bool:
        return self._draining

    async def drain(self) -> None:
        """Hand every run back at its last checkpoint; other replicas, or the next start, take them up."""
        self._draining = True
        for run_id in list(self._jobs):
            self._interrupt(run_id, StopReason.DRAIN, "")
        tasks = [job.task for job in self._jobs.values()]
        await asyncio.gather(*tasks, return_exceptions=True)


def _nobody(*told: object) -> None:
    """Stand in until someone wants to know."""
