"""The one writer of a process: what all runs have to say, committed together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from services.chassis.clock import Clock
from services.orchestrator.journal.journal import Haste, Piece, RunJournal
from services.orchestrator.journal.ports import (
    LeaseTerms,
    RunStore,
    RunWrite,
    StoreUnavailable,
    WriteOutcome,
    WriteResult,
)

T = TypeVar("T")

# Turns of the event loop that a commit nobody waits for gives to others: a call of a tool that answers at once and the
# model's next request take eight. Where nothing else is to be done, a turn costs microseconds.
UNHURRIED = 12

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """How long texts gather between two commits of them, in seconds. Facts in between are committed without them.

    The pause is `per_commit` times what a commit takes at the moment, so it grows with load, within the two bounds.
    """

    shortest: float = 0.03
    longest: float = 0.25
    per_commit: float = 3.0


class GroupWriter:
    """Commits pieces of many runs in one transaction after another. `run` is its task."""

    def __init__(
        self, store: RunStore, terms: LeaseTerms, clock: Clock, pacing: Pacing, fenced: Callable[[int], None]
    ) -> None:
        self._store = store
        self._terms = terms
        self._clock = clock
        self._pacing = pacing
        self._count_fenced = fenced
        # What waits, and who of them does not wait for more texts to gather.
        self._touched: dict[RunJournal, None] = {}
        self._hurried: dict[RunJournal, None] = {}
        self._work = asyncio.Event()
        self._urgent = asyncio.Event()
        self._awaited = asyncio.Event()
        self._commit_takes = 0.0
        # When all that waited was last committed.
        self._gathered_from = 0.0
        self._closing = False

    def now(self) -> datetime:
        """Return the time that events are stamped with."""
        return self._clock.now()

    def touched(self, journal: RunJournal, haste: Haste) -> None:
        """Take `journal` into the next commit; a patient one into the next of texts."""
        self._touched[journal] = None
        self._work.set()
        if haste is not Haste.PATIENT:
            self._hurried[journal] = None
            self._urgent.set()
        if haste is Haste.NOW:
            self._awaited.set()

    async def run(self) -> None:
        """Write for ever; on cancellation what waits is written first.

        A commit is never abandoned half-way: its outcome decides what readers see.
        """
        writing = asyncio.create_task(self._keep_writing(), name="journal-commits")
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            self._closing = True
            self._work.set()
            self._urgent.set()
            self._awaited.set()
            await writing
            raise

    async def _keep_writing(self) -> None:
        while self._touched or not self._closing:
            await self._work.wait()
            await self._flush(everyone=await self._gathered())

    async def _gathered(self) -> bool:
        """Give texts time to grow, and return whether it is everyone's turn, or before that only of who is urgent.

        The texts of other runs keep their pace then: with many runs something is urgent all the time, and each text
        would be written, and its readers woken, in ever smaller pieces.
        """
        pause = min(max(self._commit_takes * self._pacing.per_commit, self._pacing.shortest), self._pacing.longest)
        remaining = self._gathered_from + pause - self._clock.monotonic()
        if remaining > 0 and not self._closing:
            try:
                async with asyncio.timeout(remaining):
                    await self._urgent.wait()
            except TimeoutError:
                pass
            else:
                return False
        return True

    async def _flush(self, *, everyone: bool) -> None:
        # SQLite's statements run on the loop. Where nobody waits for the commit, the work that said what is written (it
        # calls a tool, and the model with its result) goes first, and what it says next joins.
        for _ in range(UNHURRIED if self._hurried else 0):
            if self._awaited.is_set():
                break
            await asyncio.sleep(0)
        journals = list(self._touched if everyone else self._hurried)
        everyone = len(journals) == len(self._touched)
        for journal in journals:
            del self._touched[journal]
            self._hurried.pop(journal, None)
        if everyone:
            self._work.clear()
        self._urgent.clear()
        self._awaited.clear()
        now = self._clock.now()
        batch = [(journal, piece) for journal in journals for piece in _composed(journal, now)]
        if not batch:
            return
        # Whoever reads should have what was just shown before the statements run.
        if any(piece.write.events and not piece.barrier for _, piece in batch):
            await asyncio.sleep(0)
        started = self._clock.monotonic()
        await self._commit(batch)
        committed = self._clock.monotonic()
        if everyone:
            self._gathered_from = committed
            self._commit_takes = 0.7 * self._commit_takes + 0.3 * (committed - started)

    async def _commit(self, batch: Sequence[tuple[RunJournal, Piece]]) -> None:
        try:
            results = await self._write([piece.write for _, piece in batch])
        except StoreUnavailable as error:
            for journal, piece in batch:
                journal.failed(piece, error)
        except Exception:  # noqa: BLE001 - one run's defect must not end the others
            _log.exception("a group commit failed; each run is written alone", extra={"event": "journal_write_failed"})
            await self._commit_apart(batch)
        else:
            self._settle(batch, results)

    async def _commit_apart(self, batch: Sequence[tuple[RunJournal, Piece]]) -> None:
        """Write every run in its own transaction, so that one bad piece harms its own run only."""
        for journal in dict.fromkeys(journal for journal, _ in batch):
            own = [(owner, piece) for owner, piece in batch if owner is journal]
            try:
                self._settle(own, await self._write([piece.write for _, piece in own]))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this run's end in this process
                for _, piece in own:
                    journal.failed(piece, error)

    def _settle(self, batch: Sequence[tuple[RunJournal, Piece]], results: Sequence[WriteResult]) -> None:
        for (journal, piece), result in zip(batch, results, strict=True):
            try:
                journal.settled(piece, result)
            except Exception as error:  # noqa: BLE001 - one run's defect must not end the writer of all
                _log.exception("a run could not be shown", extra={"event": "journal_defect", "run_id": journal.run_id})
                journal.failed(piece, error)
        for journal in dict.fromkeys(journal for journal, _ in batch):
            if journal in self._hurried and journal.has_only_waiting:
                # Shown right behind what was just committed, so that readers get both in one message.
                journal.keep_ready(_composed(journal, self._clock.now()))
            # Readers that had fallen behind the tail wait for the store to have what was shown early.
            journal.tail.wake()
        if fenced := sum(result.outcome is WriteOutcome.FENCED for result in results):
            self._count_fenced(fenced)

    async def _write(self, writes: Sequence[RunWrite]) -> Sequence[WriteResult]:
        """Write, and try again while the database is away, for as long as a lease lasts."""
        give_up = self._clock.monotonic() + self._terms.duration.total_seconds()
        delay = 0.05
        while True:
            try:
                return await answered_within(self._store.write(writes, self._terms), self._terms.duration)
            except StoreUnavailable:
                if self._clock.monotonic() + delay > give_up:
                    raise
                _log.warning("the database does not answer", extra={"event": "journal_write_retried"}, exc_info=True)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 1.0)


def _composed(journal: RunJournal, now: datetime) -> list[Piece]:
    """Return what the run has to say; a defect in saying it ends this run here, not the writer of all runs."""
    try:
        return journal.compose(now)
    except Exception as error:  # noqa: BLE001 - see above
        _log.exception("a run could not be recorded", extra={"event": "journal_defect", "run_id": journal.run_id})
        journal.lose(error)
        return []


async def answered_within(work: Coroutine[Any, Any, T], limit: timedelta) -> T:
    """Return what `work` returns, or raise StoreUnavailable when a silent network keeps it longer than `limit`.

    It is cancelled then but not awaited: cancelling a database call talks to the same silent network.
    """
    task = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=limit.total_seconds())
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        return task.result()
    task.cancel()
    # Its late outcome, whatever it is, must not be reported as never retrieved.
    task.add_done_callback(lambda late: late.cancelled() or late.exception())
    raise StoreUnavailable(f"the database did not answer within {limit.total_seconds():g} s", retry_after=1.0)
