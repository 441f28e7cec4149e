"""Readers of runs: kept events first, then the live tail, no gap and no double, in bounded memory.

Every run that this process writes or someone here watches has one Tail: the last published events, bounded in bytes and
shared by all readers. A reader holds only its cursor and the batch it is given. One that falls behind the tail's start
reads pages from the store until it has caught up, with deltas joined. Both sources are prefixes of the same numbered
list, so whichever a reader takes from, what comes after its cursor is complete.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from services.chassis.errors import Unavailable
from services.orchestrator.codec_events import ANSWER_DELTA, THINKING_DELTA, merge_deltas
from services.orchestrator.domain.events import StampedEvent
from services.orchestrator.journal.ports import EventLog, RunSignal, StoreUnavailable

T = TypeVar("T")

# How many of the last events of a run that was handed on stay for readers who were about to take them.
KEPT = 8
_RETRY = 0.25
_TEXTS = frozenset((ANSWER_DELTA, THINKING_DELTA))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedLimits:
    """Bounds of reading.

    `tail_bytes` of payloads are kept for each live run; `batch_bytes` and `batch_events` bound what one reader is given
    at once (one larger event comes alone); a batch of `join_from` events or more has its deltas joined. `gather` is how
    long live events that only tell of progress wait for text, a pause or the end, to leave in one message; `poll` the
    longest a change by another process stays unseen when its notification is lost; `patience` how long a reader waits
    for a database that does not answer, all in seconds.
    """

    tail_bytes: int = 512 * 1024
    batch_bytes: int = 256 * 1024
    batch_events: int = 512
    join_from: int = 8
    gather: float = 0.01
    poll: float = 1.0
    patience: float = 10.0


def _ignore() -> None:
    """Stand in until someone wants to know."""


class Tail:
    """The newest published events of one run, and the means to wait for more."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._events: list[StampedEvent] = []
        self._sequences: list[int] = []
        self._bytes = 0
        # Every published event above it is in the tail; None while this process does not write the run.
        self.floor: int | None = None
        # The same for the events that stay after that.
        self._kept_above = 0
        # The newest number shown.
        self.last_sequence = 0
        # Whether its last event is the terminal one.
        self.done = False
        self.readers = 0
        # One for each reader that looked and may wait: a shared one would end for all when one of them is cancelled.
        self._waiters: set[asyncio.Future[None]] = set()

    def open(self, floor: int) -> None:
        """Begin to carry the run's events, all those after `floor`."""
        self._events, self._sequences, self._bytes = [], [], 0
        self.floor, self.last_sequence, self.done = floor, floor, False
        self.wake()

    def close(self) -> None:
        """Stop carrying them: readers go on from the store."""
        self._events, self._sequences, self._bytes = [], [], 0
        self.floor = None
        self.wake()

    def hand_on(self) -> None:
        """Stop carrying them, all being committed: readers take the last ones from here, then go on from the store."""
        assert self.floor is not None
        dropped = len(self._events) - KEPT
        self._kept_above = self.floor if dropped <= 0 else self._sequences[dropped - 1]
        self._events, self._sequences = self._events[-KEPT:], self._sequences[-KEPT:]
        self._bytes = sum(len(event.payload) for event in self._events)
        self.floor = None
        self.wake()

    def publish(self, batch: Sequence[StampedEvent]) -> None:
        """Show one or more events to the readers, in order; the oldest ones leave when the bound is passed."""
        self._events.extend(batch)
        self._sequences.extend(event.sequence for event in batch)
        self._bytes += sum(len(event.payload) for event in batch)
        self.last_sequence, self.done = batch[-1].sequence, batch[-1].terminal
        if self._bytes > self._max_bytes:
            self._trim()
        self.wake()

    def _trim(self) -> None:
        """Drop the oldest until half the bound is left, so that trimming is rare."""
        dropped = 0
        while dropped < len(self._events) and self._bytes > self._max_bytes // 2:
            self._bytes -= len(self._events[dropped].payload)
            dropped += 1
        self.floor = self._sequences[dropped - 1]
        del self._events[:dropped], self._sequences[:dropped]

    def after(self, cursor: int, limits: FeedLimits) -> Sequence[StampedEvent] | None:
        """Return the next events after `cursor` within the limits; None where the store has to be asked."""
        if cursor < (self._kept_above if self.floor is None else self.floor):
            return None
        start = bisect_right(self._sequences, cursor)
        if self.floor is None and start == len(self._events):
            return None
        stop, size = start, 0
        while stop < len(self._events) and stop - start < limits.batch_events:
            size += len(self._events[stop].payload)
            if stop > start and size > limits.batch_bytes:
                break
            stop += 1
        return self._events[start:stop]

    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done at the next change. Take it before looking, so that no change is missed.

        Give it back with `leave`.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        return waiter

    def leave(self, waiter: asyncio.Future[None]) -> None:
        """Forget a future that nobody waits for any more."""
        self._waiters.discard(waiter)

    def wake(self) -> None:
        """Let everyone who waits look again."""
        for waiter in self._waiters:
            _end(waiter)
        self._waiters.clear()


class Feed:
    """The events of runs, for readers in this process, whoever owns the runs."""

    def __init__(self, log: EventLog, limits: FeedLimits, lagged: Callable[[], None] = _ignore) -> None:
        """`lagged` is told of each reader that falls behind the tail it was reading."""
        self._log = log
        self._limits = limits
        self._lagged = lagged
        self._tails: dict[str, Tail] = {}
        self._closing = False

    def close(self) -> None:
        """Send every reader elsewhere, once it has what is here: this process is about to end."""
        self._closing = True
        for tail in self._tails.values():
            tail.wake()

    def tail(self, run_id: str) -> Tail:
        """Return the run's tail, made when it is missing. For the writer; `forget` ends it."""
        tail = self._tails.get(run_id)
        if tail is None:
            tail = self._tails[run_id] = Tail(self._limits.tail_bytes)
        return tail

    def forget(self, run_id: str) -> None:
        """Drop the tail once nobody here writes or reads the run."""
        tail = self._tails.get(run_id)
        if tail is not None and tail.readers == 0 and (tail.floor is None or tail.done):
            del self._tails[run_id]

    def heard(self, signal: RunSignal) -> None:
        """Another process changed a run: its readers look again. An empty run id wakes them all."""
        if signal.run_id:
            tail = self._tails.get(signal.run_id)
            if tail is not None:
                tail.wake()
            return
        for tail in self._tails.values():
            tail.wake()

    async def watch(
        self, run_id: str, after: int = 0, *, live: bool = True, idle: Callable[[], float] | None = None
    ) -> AsyncGenerator[tuple[StampedEvent, ...], None]:
        """Yield batches of events after the sequence `after`, up to the terminal one; then end.

        With `live` false it ends where the kept events end. With `idle` an empty batch says that nothing came for so
        many seconds, or for less. Deltas of a reader that lags are joined, never dropped; a joined one carries the last
        sequence. Raises RunNotFound, EventsPruned when events after `after` are gone, StoreUnavailable when the
        database stays away, and Unavailable after `close`: watch again after the last sequence then.
        The caller has checked whose run it is.
        """
        cursor, keeps_up = after, False
        with self._reading(run_id) as (tail, waiting):
            while True:
                changed = waiting.changed()
                batch = tail.after(cursor, self._limits)
                if batch is None:
                    if keeps_up and tail.floor is not None:
                        self._lagged()
                    keeps_up = False
                    page = asyncio.ensure_future(self._page(run_id, cursor))
                    async with aclosing(_beats(page, idle)) as beats:
                        async for beat in beats:
                            yield beat
                    batch = page.result()
                else:
                    keeps_up = True
                    remaining = waiting.gathers(batch, self._limits.gather) if live and not self._closing else 0.0
                    if remaining > 0:
                        await _within(remaining, changed)
                        continue
                if batch:
                    if len(batch) >= self._limits.join_from:
                        batch = merge_deltas(batch)
                    cursor = batch[-1].sequence
                    yield tuple(batch)
                    if batch[-1].terminal:
                        return
                    continue
                if not live or await self._has_ended(run_id, tail, cursor):
                    return
                if self._closing:
                    raise Unavailable("this replica is shutting down; watch again", retry_after=0.1)
                await _within(self._limits.poll if idle is None else min(self._limits.poll, idle()), changed)
                if idle is not None:
                    yield ()

    async def _page(self, run_id: str, cursor: int) -> Sequence[StampedEvent]:
        return await self._patiently(
            lambda: self._log.events(
                run_id, cursor, limit=self._limits.batch_events, max_bytes=self._limits.batch_bytes
            )
        )

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the store again while it is away, for as long as readers are patient."""
        attempts = int(self._limits.patience / _RETRY)
        for _ in range(attempts):
            try:
                return await ask()
            except StoreUnavailable:
                await asyncio.sleep(_RETRY)
        return await ask()

    async def _has_ended(self, run_id: str, tail: Tail, cursor: int) -> bool:
        """Return whether the run is over and this reader has nothing left to see."""
        if tail.floor is not None and cursor >= tail.floor:
            # Written here: whatever is still to come, comes through the tail; its end may have come since it was read.
            return tail.done and cursor >= tail.last_sequence
        status = await self._patiently(lambda: self._log.status(run_id))
        # Events that came between the page and the status are read first.
        return status.state.is_terminal and status.last_sequence <= cursor

    @contextmanager
    def _reading(self, run_id: str) -> Iterator[tuple[Tail, _Waiting]]:
        tail = self.tail(run_id)
        tail.readers += 1
        waiting = _Waiting(tail)
        try:
            yield tail, waiting
        finally:
            waiting.end()
            tail.readers -= 1
            self.forget(run_id)


class _Waiting:
    """One reader's wait for changes of a tail."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._waiter: asyncio.Future[None] | None = None
        self._gathered_from: float | None = None

    def gathers(self, batch: Sequence[StampedEvent], longest: float) -> float:
        """Return for how many seconds a batch of live events that only tells of progress still waits for more."""
        if not batch or any(map(_is_awaited, batch)):
            self._gathered_from = None
            return 0.0
        now = asyncio.get_running_loop().time()
        if self._gathered_from is None:
            self._gathered_from = now
        remaining = self._gathered_from + longest - now
        if remaining <= 0:
            self._gathered_from = None
        return remaining

    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done at the next change from now on."""
        if self._waiter is None or self._waiter.done():
            self.end()
            self._waiter = self._tail.changed()
        return self._waiter

    def end(self) -> None:
        if self._waiter is not None:
            self._tail.leave(self._waiter)


async def _beats(
    work: asyncio.Future[Any], idle: Callable[[], float] | None
) -> AsyncGenerator[tuple[StampedEvent, ...], None]:
    """Yield an empty batch whenever `work` has taken `idle` seconds, until it is done; it ends with this generator."""
    try:
        while not work.done():
            await asyncio.wait({work}, timeout=None if idle is None else idle())
            if not work.done():
                yield ()
    finally:
        if not work.done():
            work.cancel()
            await asyncio.wait({work})


def _is_awaited(event: StampedEvent) -> bool:
    """Return whether someone waits for the event: text, a question, or the end."""
    return event.kind in _TEXTS or event.pause or event.terminal


async def _within(seconds: float, change: asyncio.Future[None]) -> None:
    """Return at the change, or after `seconds`.

    A timer that ends the future, not asyncio.wait: what is shown should leave in the loop's next turn.
    """
    timer = asyncio.get_running_loop().call_later(seconds, _end, change)
    try:
        await change
    finally:
        timer.cancel()


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
