"""All runs that this process owns: opened, written by one writer, their leases kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from services.chassis import names
from services.chassis.clock import Clock
from services.chassis.telemetry import Telemetry, no_telemetry
from services.orchestrator.codec_events import EventEncoder, kind_of, stamped
from services.orchestrator.domain.events import Fact
from services.orchestrator.domain.run import Fenced, NewRun, Run
from services.orchestrator.domain.text import all_well_formed
from services.orchestrator.domain.usage import QuotaExceeded
from services.orchestrator.journal.feed import Feed
from services.orchestrator.journal.journal import RunJournal
from services.orchestrator.journal.ports import LeaseTerms, Ownership, RunSignal, RunStore, Signals, StoreUnavailable
from services.orchestrator.journal.writer import GroupWriter, Pacing, answered_within

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A new run with its journal, or, without one, the run that the same request started before.

    `tool_memory` is what the tools remember in its conversation.
    """

    run: Run
    journal: RunJournal | None
    tool_memory: bytes = b""


class Journals:
    """Opens runs for writing. `start` begins writing, renewing and listening; `close` ends them."""

    def __init__(
        self,
        store: RunStore,
        feed: Feed,
        signals: Signals,
        clock: Clock,
        terms: LeaseTerms,
        pacing: Pacing | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        telemetry = telemetry or no_telemetry()
        self._lost = telemetry.counter(__name__, names.LEASES_LOST)
        self._recovered = telemetry.counter(__name__, names.LEASES_RECOVERED)
        self._refused = telemetry.counter(__name__, names.QUOTA_REJECTED)
        fenced = telemetry.counter(__name__, names.LEASES_FENCED)
        self._store = store
        self._feed = feed
        self._signals = signals
        self._clock = clock
        self._terms = terms
        self._writer = GroupWriter(store, terms, clock, pacing or Pacing(), fenced.add)
        self._open: dict[str, RunJournal] = {}
        self._renew_now = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def terms(self) -> LeaseTerms:
        """How this process owns runs."""
        return self._terms

    @property
    def open_runs(self) -> Sequence[RunJournal]:
        """Return the journals of runs that this process owns now."""
        return [journal for journal in self._open.values() if journal.is_open]

    async def start(self) -> None:
        """Begin the background work."""
        self._tasks = [
            asyncio.create_task(self._writer.run(), name="journal-writer"),
            asyncio.create_task(self._keep_leases(), name="journal-leases"),
            asyncio.create_task(self._signals.listen(self._heard), name="journal-signals"),
        ]

    async def close(self) -> None:
        """Write what waits and stop. Runs still open keep their lease until it ends: hand them back before."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def admit(self, new: NewRun, *first: Fact) -> Admitted:
        """Admit a run and open it, or find the run that the same request started. Raises as `RunStore.admit`.

        `first` are its first events, committed with it.
        """
        encoder, now = EventEncoder(new.run.run_id, attempt=1), self._clock.now()
        events = tuple(
            stamped(number, kind_of(event), encoder.encode(all_well_formed(event), sequence=number, at=now))
            for number, event in enumerate(first, start=1)
        )
        try:
            admission = await self._store.admit(replace(new, events=events), self._terms)
        except QuotaExceeded as error:
            self._refused.add(1, {names.QUOTA_KIND: error.measure})
            raise
        if admission.ownership is None:
            return Admitted(run=admission.run, journal=None)
        journal = self._opened(admission.ownership, floor=0)
        if events:
            journal.tail.publish(events)
        return Admitted(run=admission.run, journal=journal, tool_memory=admission.tool_memory)

    async def claim(self, run_id: str) -> RunJournal | None:
        """Take over or resume a run; None when another owner has it or it is over."""
        ownership = await self._store.claim(run_id, self._terms)
        if ownership is None:
            return None
        if ownership.taken_over:
            self._recovered.add(1)
        return self.open(ownership)

    def open(self, ownership: Ownership) -> RunJournal:
        """Return the handle that writes an owned run; an earlier handle of the same run is fenced."""
        return self._opened(ownership, floor=ownership.run.last_sequence)

    def _opened(self, ownership: Ownership, floor: int) -> RunJournal:
        run_id = ownership.run.run_id
        if earlier := self._open.get(run_id):
            earlier.lose(Fenced(run_id, earlier.epoch))
        tail = self._feed.tail(run_id)
        tail.open(floor)
        journal = RunJournal(ownership, tail, self._writer, self._terms.block, closed=self._forget)
        self._open[run_id] = journal
        return journal

    async def request_cancel(self, tenant: str, run_id: str, by: str) -> Run:
        """Record that the run shall stop and tell its owner. Raises RunNotFound."""
        run = await self._store.request_cancel(tenant, run_id, by)
        if run.cancel_requested_by and (journal := self._open.get(run_id)):
            journal.cancel_noted(run.cancel_requested_by)
        return run

    def _forget(self, journal: RunJournal) -> None:
        """A handle was closed or lost."""
        if journal.is_lost:
            self._lost.add(1)
        if self._open.get(journal.run_id) is journal:
            del self._open[journal.run_id]
            self._feed.forget(journal.run_id)

    def _heard(self, signal: RunSignal) -> None:
        self._feed.heard(signal)
        # Renewing at once tells who asked for a cancellation, and whether the run was taken from us.
        if not signal.run_id or (signal.for_owner and signal.run_id in self._open):
            self._renew_now.set()

    async def _keep_leases(self) -> None:
        """Renew three times per lease, or at once when a signal asks for it."""
        period = self._terms.duration.total_seconds() / 3
        renewed_at = self._clock.monotonic()
        while True:
            try:
                async with asyncio.timeout(period):
                    await self._renew_now.wait()
            except TimeoutError:
                pass
            self._renew_now.clear()
            held = {journal.run_id: journal for journal in self.open_runs}
            try:
                await self._renew(held)
                renewed_at = self._clock.monotonic()
            except StoreUnavailable as error:
                _log.warning("leases could not be renewed", extra={"event": "lease_renewal_failed"}, exc_info=True)
                if self._clock.monotonic() - renewed_at > self._terms.duration.total_seconds():
                    # They have ended; others may lead these runs already, behind a network that we cannot see through.
                    for journal in held.values():
                        journal.lose(error)
            except Exception:  # noqa: BLE001 - the loop outlives every failure
                _log.exception("renewing leases failed", extra={"event": "lease_renewal_failed"})

    async def _renew(self, held: dict[str, RunJournal]) -> None:
        if not held:
            return
        epochs = {run_id: journal.epoch for run_id, journal in held.items()}
        renewals = await answered_within(self._store.renew(epochs, self._terms), self._terms.duration / 3)
        kept = {renewal.run_id for renewal in renewals}
        for renewal in renewals:
            if renewal.cancel_requested_by:
                held[renewal.run_id].cancel_noted(renewal.cancel_requested_by)
        for run_id, journal in held.items():
            if run_id in kept:
                continue
            # Those that ended meanwhile are closed, for which this does nothing.
            journal.lose(Fenced(run_id, journal.epoch))
