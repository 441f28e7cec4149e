"""Whatever happens in whatever order, the journal's laws hold: order, resume points, numbers never reused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from services.chassis.clock import SystemClock
from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.codec_events import DELTA_KINDS, decode
from services.orchestrator.domain.events import AnswerDelta, Notice, StampedEvent, ThinkingDelta
from services.orchestrator.domain.run import Fenced
from services.orchestrator.journal.feed import FeedLimits
from services.orchestrator.journal.journal import RunJournal
from services.orchestrator.journal.ports import LeaseTerms, RunSignal, RunStore, RunWrite, StoreUnavailable, WriteResult
from tests.support.journal_kit import Replica, completed, new_run, replica

_calls = st.sampled_from(("m1", "m2"))
_words = st.text(alphabet="abc é中", min_size=1, max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("answer"), _calls, _words),
        st.tuples(st.just("think"), _calls, _words),
        st.tuples(st.just("fact"), _words),
        st.tuples(st.just("settle")),
        st.tuples(st.just("stall")),
        st.tuples(st.just("flow")),
        st.tuples(st.just("take over")),
        st.tuples(st.just("lose answer")),
        st.tuples(st.just("lose question")),
        st.tuples(st.just("yield")),
        st.tuples(st.just("watch"), st.integers(0, 50)),
    ),
    max_size=40,
)


class Stalling:
    """A run store whose writes can be held up, and fail before or after they are committed."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.lost_questions = 0
        self.lost_answers = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, batch: Sequence[RunWrite], terms: LeaseTerms) -> Sequence[WriteResult]:
        await self.flowing.wait()
        if self.lost_questions:
            self.lost_questions -= 1
            raise StoreUnavailable("the question was lost")
        results = await self._store.write(batch, terms)
        if self.lost_answers:
            self.lost_answers -= 1
            raise StoreUnavailable("the answer was lost")
        return results


@dataclass(slots=True)
class Reader:
    """A watch from a cursor, and all it was shown."""

    after: int
    seen: list[StampedEvent] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    async def read(self, here: Replica, run_id: str) -> None:
        async for batch in here.feed.watch(run_id, self.after):
            self.seen += batch


@dataclass(slots=True)
class World:
    """One run and everything that happens to it."""

    database: Database
    limits: FeedLimits
    block: int
    stack: AsyncExitStack
    here: Replica = field(init=False)
    store: Stalling = field(init=False)
    journal: RunJournal = field(init=False)
    readers: list[Reader] = field(default_factory=list)
    facts: list[asyncio.Task[None]] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    replicas: list[Replica] = field(default_factory=list)

    async def replica(self) -> None:
        """Bring up another process."""
        self.store = Stalling(self.database.runs)
        self.here = await self.stack.enter_async_context(
            replica(
                self.database,
                owner=f"owner-{len(self.replicas)}",
                limits=self.limits,
                block=self.block,
                store=lambda _: self.store,
            )
        )
        self.replicas.append(self.here)

    async def fact(self, text: str) -> None:
        try:
            await self.journal.fact(Notice(code="n", text=text))
        except Fenced:
            return
        self.acknowledged.append(text)

    async def step(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("answer", call, text):
                self.journal.delta(AnswerDelta(text=text, model_call_id=call))
            case ("think", call, text):
                self.journal.delta(ThinkingDelta(text=text, model_call_id=call))
            case ("fact", text):
                self.facts.append(asyncio.create_task(self.fact(text)))
            case ("settle",) if self.store.flowing.is_set():
                await self.journal.settle()
            case ("stall",):
                self.store.flowing.clear()
            case ("flow",):
                self.store.flowing.set()
            case ("lose answer",):
                self.store.lost_answers = 1
            case ("lose question",):
                self.store.lost_questions = 1
            case ("take over",):
                await self.take_over()
            case ("watch", choice):
                shown = sorted({0} | {event.sequence for reader in self.readers for event in reader.seen})
                reader = Reader(after=shown[choice % len(shown)])
                reader.task = asyncio.create_task(reader.read(self.here, self.journal.run_id))
                self.readers.append(reader)
            case _:
                await asyncio.sleep(0.002)

    async def take_over(self) -> None:
        """A second process takes the run; the first one's writes, held up or not, come too late."""
        stalled = self.store
        await self.database.runs.disown_all()
        run_id = self.journal.run_id
        await self.replica()
        journal = await self.here.journals.claim(run_id)
        assert journal is not None
        self.journal = journal
        stalled.flowing.set()
        # What a notification does: the owners that were look at their leases.
        for here in self.replicas:
            here.journals._heard(RunSignal(run_id=run_id, for_owner=True))

    async def finish(self) -> list[StampedEvent]:
        """End the run and return what is stored."""
        self.store.flowing.set()
        await self.journal.finish(completed())
        await asyncio.gather(*self.facts)
        for reader in self.readers:
            assert reader.task is not None
            await reader.task
        return list(await self.database.runs.events(self.journal.run_id, 0, limit=10_000, max_bytes=10_000_000))


def check(world: World, stored: list[StampedEvent]) -> None:
    sequences = [event.sequence for event in stored]
    assert sequences == sorted(set(sequences))
    assert [event.terminal for event in stored] == [False] * (len(stored) - 1) + [True]
    facts = [e.text for e in (decode(event.payload).event for event in stored) if isinstance(e, Notice)]
    # Every acknowledged fact is kept, in order; one that was not acknowledged may be kept too.
    kept = iter(facts)
    assert all(text in kept for text in world.acknowledged)
    attempts = [decode(event.payload).attempt for event in stored]
    assert attempts == sorted(attempts)
    for reader in world.readers:
        check_reader(reader, stored)


def check_reader(reader: Reader, stored: list[StampedEvent]) -> None:
    """A reader was shown all that is stored after its cursor, once and in order, and of the rest only lost texts."""
    sequences = [event.sequence for event in reader.seen]
    assert sequences == sorted(set(sequences))
    assert all(sequence > reader.after for sequence in sequences)
    expected = [event for event in stored if event.sequence > reader.after]
    kept_facts = [event for event in expected if event.kind not in DELTA_KINDS]
    assert [event for event in reader.seen if event.kind not in DELTA_KINDS] == kept_facts
    numbers = {event.sequence: event for event in expected}
    last_attempt = decode(stored[-1].payload).attempt
    for event in reader.seen:
        if event.sequence in numbers:
            del numbers[event.sequence]
        else:
            # Shown but never committed: a text of an owner that lost the run.
            assert event.kind in DELTA_KINDS
            assert decode(event.payload).attempt < last_attempt
    assert numbers == {}


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Database]]:
    """One loop and one database for all examples: each has a run of its own."""
    path: Path = tmp_path_factory.mktemp("journal") / "runs.sqlite3"
    with asyncio.Runner() as runner:
        database = runner.run(Database.open(f"sqlite:///{path}", SystemClock()))
        yield runner, database
        runner.run(database.close())


def laws_hold(
    ground: tuple[asyncio.Runner, Database], steps: list[tuple[Any, ...]], tail: int, batch: int, block: int
) -> None:
    runner, database = ground
    # Nothing is joined, so that events can be compared one by one.
    limits = FeedLimits(poll=0.05, tail_bytes=tail, batch_bytes=100_000, batch_events=batch, join_from=1000)

    async def example() -> None:
        async with AsyncExitStack() as stack, asyncio.timeout(20):
            world = World(database, limits, block, stack)
            await world.replica()
            journal = (await world.here.journals.admit(new_run())).journal
            assert journal is not None
            world.journal = journal
            for step in steps:
                await world.step(step)
            check(world, await world.finish())

    runner.run(example())


# A text is shown and never committed, since its owner dies; the next owner must not use its number again.
SHOWN_AND_LOST = [
    ("watch", 0),
    ("fact", "a"),
    ("settle",),
    ("stall",),
    ("answer", "m1", "b"),
    ("yield",),
    ("yield",),
    ("yield",),
    ("take over",),
    ("fact", "c"),
    ("fact", "d"),
]
ARGUMENTS: dict[str, Any] = {
    "steps": STEPS,
    "tail": st.sampled_from((1, 200, 1000, 100_000)),
    "batch": st.integers(1, 16),
    "block": st.sampled_from((1, 2, 5, 256)),
}
FIXED = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)


@example(steps=SHOWN_AND_LOST, tail=1000, batch=16, block=256)
@example(steps=SHOWN_AND_LOST, tail=1000, batch=16, block=1)
@given(**ARGUMENTS)
@settings(max_examples=60, deadline=None, suppress_health_check=FIXED)
def test_the_journals_laws_hold(
    ground: tuple[asyncio.Runner, Database], steps: list[tuple[Any, ...]], tail: int, batch: int, block: int
) -> None:
    laws_hold(ground, steps, tail, batch, block)


@pytest.mark.prove
@pytest.mark.timeout(1800)
@given(**ARGUMENTS)
@settings(max_examples=2000, deadline=None, suppress_health_check=FIXED)
def test_the_journals_laws_hold_at_length(
    ground: tuple[asyncio.Runner, Database], steps: list[tuple[Any, ...]], tail: int, batch: int, block: int
) -> None:
    laws_hold(ground, steps, tail, batch, block)
