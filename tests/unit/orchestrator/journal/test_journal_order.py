"""The journal of one run: order, merging, when things are seen, interruption, failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import NumberDataPoint

from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.domain.events import (
    Notice,
    ProgressStream,
    RunPaused,
    RunResumed,
    Stage,
    StageChanged,
    StampedEvent,
    ThinkingDelta,
    ToolCallProgress,
    ToolCallProposed,
    ToolCallStarted,
)
from services.orchestrator.domain.messages import Role, ToolCall, text_message
from services.orchestrator.domain.run import Checkpoint, Fenced, RunCancelRequested, RunState
from services.orchestrator.journal import writer
from services.orchestrator.journal.journal import InterruptKind, RunJournal
from services.orchestrator.journal.ports import LeaseTerms, Renewal, RunStore, RunWrite, StoreUnavailable, WriteResult
from services.orchestrator.journal.writer import Pacing
from tests.support.journal_kit import Replica, answer, answer_text, completed, decoded, interruption, new_run, replica
from tests.support.platform import recorded_telemetry

STARTED = ToolCallStarted(call_id="c1", name="search", arguments_json=b"{}")
THINKING = StageChanged(stage=Stage.THINKING, text="Thinking")


class Gated:
    """A run store whose writes wait for a gate, and can be told to fail."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrived = asyncio.Event()
        self.failures: list[Exception] = []
        self.fail_after_commit = False
        self.batches: list[Sequence[RunWrite]] = []
        self.silent = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def holding(self, commit: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a commit that waits at the gate, closed now."""
        self.gate.clear()
        task = asyncio.create_task(commit)
        await self.arrived.wait()
        return task

    async def renew(self, held: Mapping[str, int], terms: LeaseTerms) -> Sequence[Renewal]:
        if self.silent:
            await asyncio.Event().wait()
        return await self._store.renew(held, terms)

    async def write(self, batch: Sequence[RunWrite], terms: LeaseTerms) -> Sequence[WriteResult]:
        self.arrived.set()
        self.batches.append(batch)
        await self.gate.wait()
        if self.silent:
            await asyncio.Event().wait()
        if self.failures and not self.fail_after_commit:
            raise self.failures.pop(0)
        results = await self._store.write(batch, terms)
        if self.failures:
            raise self.failures.pop(0)
        return results


@pytest.fixture
def gated(database: Database) -> Gated:
    return Gated(database.runs)


@pytest.fixture
async def here(database: Database, gated: Gated) -> AsyncIterator[Replica]:
    async with replica(database, store=lambda store: gated) as made:  # type: ignore[arg-type,return-value]
        yield made


async def started(here: Replica, run_id: str = "") -> RunJournal:
    journal = (await here.journals.admit(new_run(run_id))).journal
    assert journal is not None
    return journal


async def first_batch(here: Replica, run_id: str, after: int = 0) -> list[StampedEvent]:
    async with aclosing(here.feed.watch(run_id, after)) as watching:
        return list(await anext(watching))


async def test_events_are_kept_in_the_order_they_were_recorded(here: Replica) -> None:
    journal = await started(here)
    await journal.fact(THINKING)
    journal.delta(ThinkingDelta(text="hm ", model_call_id="m1"))
    journal.delta(ThinkingDelta(text="yes", model_call_id="m1"))
    journal.delta(answer("An"))
    await journal.fact(STARTED)
    journal.delta(answer("swer"))
    await journal.finish(completed("Answer"))
    events = await here.read(journal.run_id)
    assert [type(event).__name__ for event in decoded(events)] == [
        "StageChanged",
        "ThinkingDelta",
        "ThinkingDelta",  # the first piece was shown at once
        "AnswerDelta",
        "ToolCallStarted",
        "AnswerDelta",
        "RunCompleted",
    ]
    assert [event.sequence for event in events] == [1, 2, 3, 4, 5, 6, 7]
    assert answer_text(events) == "Answer"
    assert events[-1].terminal
    assert await here.database.runs.events(journal.run_id, 0, limit=99, max_bytes=99_999) == events


async def test_deltas_gather_while_a_commit_runs_and_none_is_dropped(here: Replica, gated: Gated) -> None:
    journal = await started(here)
    gated.gate.clear()
    for n in range(100):
        journal.delta(answer(f"{n},"))
        if n == 0:
            await gated.arrived.wait()
    gated.gate.set()
    await journal.finish(completed())
    events = await here.read(journal.run_id)
    assert answer_text(events) == "".join(f"{n}," for n in range(100))
    # The first piece went alone and at once, the others became one.
    assert len(events) == 3


async def test_texts_of_different_calls_and_streams_stay_apart(here: Replica) -> None:
    journal = await started(here)
    out = ToolCallProgress(call_id="c", stream=ProgressStream.STDOUT, text="o")
    err = ToolCallProgress(call_id="c", stream=ProgressStream.STDERR, text="e", fraction=0.5)
    texts = ((out, ""), (out, ""), (out, ""), (err, ""), (out, "s1"), (answer("a", "m1"), ""), (answer("b", "m2"), ""))
    for event, step in texts:
        journal.delta(event, step)
    await journal.finish(completed())
    events = decoded(await here.read(journal.run_id))[:-1]
    assert events == [
        out,
        replace(out, text="oo"),
        err,
        out,
        answer("a", "m1"),
        answer("b", "m2"),
    ]


async def test_a_delta_is_shown_before_its_commit_and_a_fact_only_after(here: Replica, gated: Gated) -> None:
    journal = await started(here)
    gated.gate.clear()
    journal.delta(answer("early"))
    fact = asyncio.create_task(journal.fact(THINKING))
    await gated.arrived.wait()
    assert answer_text(await first_batch(here, journal.run_id)) == "early"
    later = asyncio.create_task(first_batch(here, journal.run_id, after=1))
    await asyncio.sleep(0.02)
    assert not later.done()
    assert not fact.done()
    gated.gate.set()
    await fact
    assert decoded(await later) == [THINKING]


async def test_text_before_an_awaited_fact_is_shown_with_it(here: Replica, gated: Gated) -> None:
    journal = await started(here)
    journal.delta(answer("one"))
    await gated.arrived.wait()
    gated.gate.clear()
    gated.arrived.clear()
    # It goes on, so it is not the first piece of a text, which would be shown at once.
    journal.delta(answer(" two"))
    fact = asyncio.create_task(journal.fact(THINKING))
    await gated.arrived.wait()
    later = asyncio.create_task(first_batch(here, journal.run_id, after=1))
    await asyncio.sleep(0.02)
    assert not later.done()
    gated.gate.set()
    await fact
    assert decoded(await later) == [answer(" two"), THINKING]


class Drawn:
    """Makes checkpoints that tell how many were made."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Checkpoint:
        self.count += 1
        return Checkpoint(head=b"%d" % self.count, min_reader=1)


async def test_what_is_saved_soon_is_committed_with_what_follows_and_its_checkpoint(
    here: Replica, gated: Gated
) -> None:
    journal = await started(here)
    draw = Drawn()
    await journal.fact(THINKING)
    journal.save_soon(draw, Notice(code="asked", text="Allow?"))
    for _ in range(5):
        await asyncio.sleep(0)  # as a task group does at its end
    state = Checkpoint(head=b"paused", min_reader=1)
    await journal.fact(RunPaused(pending=(), deadline=None), checkpoint=state, state=RunState.PAUSED, release=True)
    assert [len(batch) for batch in gated.batches] == [1, 2]
    assert [piece.checkpoint for piece in gated.batches[1]] == [None, state]
    assert draw.count == 0


async def test_what_is_saved_soon_is_made_when_it_is_committed(here: Replica, gated: Gated) -> None:
    journal = await started(here)
    draw = Drawn()
    journal.save_soon(draw, Notice(code="asked", text="Allow?"))
    journal.save_soon(draw)
    journal.begin_to_read(STARTED)
    assert draw.count == 0
    await journal.settle()
    (batch, *_) = gated.batches
    assert [piece.checkpoint and piece.checkpoint.head for piece in batch][:3] == [None, b"1", None]
    assert (await here.database.runs.load_checkpoint(journal.run_id)).head == b"1"


async def test_what_is_saved_soon_is_made_before_the_next_text(here: Replica, gated: Gated) -> None:
    journal = await started(here)
    fact = await gated.holding(journal.fact(THINKING))
    draw = Drawn()
    journal.save_soon(draw)
    journal.delta(THINKING)
    for _ in range(20):
        await asyncio.sleep(0)
    assert draw.count == 0
    # What is said changes the state at its end, when this is still to be written.
    journal.delta(answer("Hello"))
    assert draw.count == 1
    gated.gate.set()
    await fact
    await journal.settle()
    assert draw.count == 1
    assert (await here.database.runs.load_checkpoint(journal.run_id)).head == b"1"


async def test_what_may_be_refused_takes_no_checkpoint_with_it(here: Replica, gated: Gated) -> None:
    journal = await started(here)
    before = await gated.holding(journal.fact(THINKING))
    journal.save_soon(Drawn(), Notice(code="asked", text="Allow?"))
    refused = asyncio.create_task(journal.fact(STARTED, checkpoint=Checkpoint(head=b"started", min_reader=1)))
    await here.database.runs.request_cancel("acme", journal.run_id, "ann")
    gated.gate.set()
    await before
    with pytest.raises(RunCancelRequested):
        await refused
    assert (await here.database.runs.load_checkpoint(journal.run_id)).head == b"1"


async def test_a_resume_waits_for_nothing_and_nothing_overtakes_it(here: Replica, gated: Gated) -> None:
    journal = await started(here)
    gated.gate.clear()
    journal.resumed(RunResumed(paused=timedelta(seconds=3), cause="decision"))
    journal.delta(answer("late"))
    fact = asyncio.create_task(journal.fact(STARTED))
    await gated.arrived.wait()
    assert journal.tail.last_sequence == 0  # not even text is shown before it
    gated.gate.set()
    await fact
    assert [type(event).__name__ for event in decoded(await first_batch(here, journal.run_id))] == [
        "RunResumed",
        "AnswerDelta",
        "ToolCallStarted",
    ]


async def test_a_delta_outside_the_reserved_block_waits_for_its_commit(database: Database) -> None:
    gated = Gated(database.runs)
    async with replica(database, block=1, store=lambda store: gated) as here:  # type: ignore[arg-type,return-value]
        journal = await started(here)
        gated.gate.clear()
        journal.delta(answer("a", "m1"))
        journal.delta(answer("b", "m2"))
        assert answer_text(await first_batch(here, journal.run_id)) == "a"
        watching = asyncio.create_task(first_batch(here, journal.run_id, after=1))
        await gated.arrived.wait()
        await asyncio.sleep(0.02)
        assert not watching.done()
        gated.gate.set()
        assert answer_text(await watching) == "b"


async def test_a_text_never_overtakes_a_fact_that_is_being_committed(here: Replica, gated: Gated) -> None:
    journal = await started(here)
    fact = await gated.holding(journal.fact(STARTED))
    journal.delta(answer("later"))
    watching = asyncio.create_task(first_batch(here, journal.run_id))
    await asyncio.sleep(0.02)
    assert not watching.done()
    gated.gate.set()
    await fact
    assert isinstance(decoded(await watching)[0], ToolCallStarted)
    await journal.finish(completed())
    assert [e.sequence for e in await here.read(journal.run_id)] == [1, 2, 3]


@pytest.mark.parametrize("early", [True, False])
async def test_text_waits_for_stages_and_checkpoints_only_where_the_run_wants_that(
    here: Replica, gated: Gated, early: bool
) -> None:
    journal = await started(here)
    journal.shows_early = early
    gated.gate.clear()
    journal.save(Checkpoint(head=b"head-2", min_reader=1, new_segments=()))
    journal.delta(THINKING)
    journal.delta(answer("first"))
    watching = asyncio.create_task(first_batch(here, journal.run_id))
    await gated.arrived.wait()
    await asyncio.sleep(0.02)
    assert watching.done() is early
    gated.gate.set()
    assert decoded(await watching)[0] == THINKING
    await journal.finish(completed("first"))
    assert [e.sequence for e in await here.read(journal.run_id)] == [1, 2, 3]
    assert (await here.database.runs.load_checkpoint(journal.run_id)).head == b"head-2"


@pytest.mark.parametrize("checkpoint_between", [True, False])
async def test_text_of_an_announced_call_waits_for_nothing_until_a_checkpoint_comes_between(
    here: Replica, gated: Gated, checkpoint_between: bool
) -> None:
    journal = await started(here)
    journal.announced = True
    gated.gate.clear()
    if checkpoint_between:
        journal.save(Checkpoint(head=b"head-2", min_reader=1, new_segments=()))
    journal.delta(answer("first"))
    watching = asyncio.create_task(first_batch(here, journal.run_id))
    await gated.arrived.wait()
    await asyncio.sleep(0.02)
    assert watching.done() is not checkpoint_between
    gated.gate.set()
    assert decoded(await watching) == [answer("first")]
    await journal.finish(completed("first"))


async def test_a_leg_that_is_stopped_while_it_pauses_may_hand_its_run_back_and_ends_no_writer(
    here: Replica, gated: Gated
) -> None:
    journal, other = await started(here), await started(here)
    gated.gate.clear()
    paused = RunPaused(pending=(), deadline=None)
    pausing = asyncio.create_task(journal.fact(paused, state=RunState.PAUSED, pending=(), release=True))
    await gated.arrived.wait()
    pausing.cancel()
    handing_back = asyncio.create_task(journal.hand_back())
    await asyncio.sleep(0)
    gated.gate.set()
    async with asyncio.timeout(5):
        await handing_back
        await other.finish(completed())
    assert decoded(await here.read(journal.run_id, live=False)) == [paused]
    assert [open_.run_id for open_ in here.journals.open_runs] == []


async def test_a_defect_in_showing_one_run_ends_that_run_here_and_not_the_writer(
    here: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = await started(here), await started(here)

    def publish(batch: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(bad.tail, "publish", publish)
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="a defect"):
            await bad.finish(completed())
        await good.finish(completed())
    assert not bad.is_open


async def test_what_is_saved_is_kept_whatever_a_model_wrote_in_it(here: Replica) -> None:
    journal = await started(here)
    proposed = ToolCallProposed(
        call=ToolCall(call_id="c", name="t", arguments_json=b"{}", reason="half \ud800"), round=1
    )
    journal.save(Checkpoint(head=b"head-2", min_reader=1, new_segments=()), proposed)
    await journal.finish(completed())
    saved, _ = decoded(await here.read(journal.run_id))
    assert saved == replace(proposed, call=replace(proposed.call, reason="half \ufffd"))
    assert (await here.database.runs.load_checkpoint(journal.run_id)).head == b"head-2"


async def test_other_events_may_be_recorded_without_waiting_but_stay_facts(here: Replica, gated: Gated) -> None:
    journal = await started(here)
    gated.gate.clear()
    journal.delta(THINKING)
    watching = asyncio.create_task(first_batch(here, journal.run_id))
    await gated.arrived.wait()
    await asyncio.sleep(0.02)
    assert not watching.done()
    gated.gate.set()
    assert decoded(await watching) == [THINKING]


async def test_what_must_be_awaited_cannot_be_recorded_without_waiting(here: Replica) -> None:
    journal = await started(here)
    for event in (STARTED, completed()):
        with pytest.raises(TypeError, match="must be awaited"):
            journal.delta(event)
    with pytest.raises(TypeError, match="use finish"):
        await journal.fact(completed())


async def test_nothing_follows_the_terminal_event(here: Replica) -> None:
    journal = await started(here)
    journal.delta(answer("a"))
    ending = asyncio.create_task(journal.finish(completed()))
    await asyncio.sleep(0)
    journal.delta(answer("late"))
    await ending
    journal.delta(answer("later"))
    with pytest.raises(Fenced):
        await journal.fact(THINKING)
    with pytest.raises(Fenced):
        await journal.finish(completed())
    events = await here.read(journal.run_id)
    assert [event.terminal for event in events] == [False, True]
    assert here.journals.open_runs == []


async def test_two_ends_at_once_are_one_end(here: Replica) -> None:
    journal = await started(here)
    outcomes = await asyncio.gather(
        journal.finish(completed("a")), journal.finish(completed("b")), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), Fenced]
    assert decoded(await here.read(journal.run_id)) == [completed("a")]


async def test_cancellation_wakes_the_loop_and_refuses_a_tools_start(here: Replica) -> None:
    journal = await started(here)
    waiting = asyncio.create_task(interruption(journal))
    await asyncio.sleep(0)
    await here.journals.request_cancel("acme", journal.run_id, "bob")
    interrupt = await waiting
    assert (interrupt.kind, interrupt.by) == (InterruptKind.CANCEL_REQUESTED, "bob")
    journal.delta(answer("half"))
    with pytest.raises(RunCancelRequested) as raised:
        await journal.fact(STARTED)
    assert raised.value.by == "bob"
    await journal.fact(Notice(code="n", text="still writable"))
    await journal.finish(completed())
    kinds = [type(event).__name__ for event in decoded(await here.read(journal.run_id))]
    assert kinds == ["AnswerDelta", "Notice", "RunCompleted"]


async def test_a_reads_start_waits_for_nothing_and_is_shown_committed(here: Replica, gated: Gated) -> None:
    journal = await started(here)
    gated.gate.clear()
    journal.begin_to_read(STARTED)
    await gated.arrived.wait()
    assert journal.tail.last_sequence == 0
    gated.gate.set()
    await journal.finish(completed())
    kinds = [type(event).__name__ for event in decoded(await here.read(journal.run_id))]
    assert kinds == ["ToolCallStarted", "RunCompleted"]


async def test_a_reads_start_is_refused_once_a_cancellation_is_known(here: Replica) -> None:
    journal = await started(here)
    await here.journals.request_cancel("acme", journal.run_id, "bob")
    with pytest.raises(RunCancelRequested) as raised:
        journal.begin_to_read(STARTED)
    assert raised.value.by == "bob"
    await journal.finish(completed())
    with pytest.raises(Fenced):
        journal.begin_to_read(STARTED)
    assert [type(event).__name__ for event in decoded(await here.read(journal.run_id))] == ["RunCompleted"]


async def test_what_a_run_says_soon_joins_one_commit_with_what_is_awaited_next(
    here: Replica, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "UNHURRIED", 3600)
    journal = await started(here)
    await journal.settle()
    before = len(gated.batches)
    journal.begin_to_read(STARTED)
    for _ in range(20):
        await asyncio.sleep(0)  # as a tool and its task do
    journal.delta(Notice(code="n", text="read"))
    await journal.fact(THINKING)
    assert [len(batch) for batch in gated.batches[before:]] == [3]


async def test_a_cancel_flag_set_behind_the_owners_back_is_found_by_the_next_write(here: Replica) -> None:
    journal = await started(here)
    await here.database.runs.request_cancel("acme", journal.run_id, "bob")
    with pytest.raises(RunCancelRequested):
        await journal.fact(STARTED)
    assert journal.cancel_requested_by == "bob"


async def test_one_runs_fence_is_not_anothers(here: Replica) -> None:
    lost, kept = await started(here), await started(here)
    await here.database.runs.disown_all()
    thief = await here.database.runs.claim(lost.run_id, LeaseTerms(owner="thief"))
    assert thief is not None
    again = await here.journals.claim(kept.run_id)
    assert again is not None
    with pytest.raises(Fenced):
        await lost.fact(THINKING)
    assert (await interruption(lost)).kind is InterruptKind.OWNERSHIP_LOST
    with pytest.raises(Fenced):
        await kept.fact(THINKING)
    await again.finish(completed())
    assert [journal.run_id for journal in here.journals.open_runs] == []


async def test_a_run_given_up_is_free_when_its_lease_ends(database: Database) -> None:
    async with replica(database, lease=0.2) as here:
        journal = await started(here)
        reader = asyncio.create_task(here.read(journal.run_id))
        await journal.fact(THINKING)
        journal.give_up()
        journal.give_up()
        with pytest.raises(Fenced):
            await journal.fact(THINKING)
        async with asyncio.timeout(5):
            while (again := await here.journals.claim(journal.run_id)) is None:
                await asyncio.sleep(0.01)
        assert again.taken_over
        await again.finish(completed())
        again.give_up()
        assert decoded(await reader) == [THINKING, completed()]


async def test_changes_of_hands_are_counted(database: Database) -> None:
    recorded = recorded_telemetry()
    async with replica(database, telemetry=recorded.telemetry) as here:
        journal = await started(here)
        await database.runs.disown_all()
        thief = await database.runs.claim(journal.run_id, LeaseTerms(owner="thief"))
        assert thief is not None
        with pytest.raises(Fenced):
            await journal.fact(THINKING)
        await database.runs.disown_all()
        assert await here.journals.claim(journal.run_id) is not None
    for name in ("proctor.leases.lost", "proctor.leases.fenced_writes", "proctor.leases.recovered"):
        (point,) = recorded.points(name)
        assert isinstance(point, NumberDataPoint)
        assert point.value == 1


async def test_a_database_that_comes_back_loses_and_doubles_nothing(here: Replica, gated: Gated) -> None:
    journal = await started(here)
    gated.failures = [StoreUnavailable("away"), StoreUnavailable("away")]
    gated.fail_after_commit = True
    journal.delta(answer("a"))
    await journal.fact(THINKING)
    await journal.finish(completed())
    assert [type(e).__name__ for e in decoded(await here.read(journal.run_id))] == [
        "AnswerDelta",
        "StageChanged",
        "RunCompleted",
    ]


async def test_a_database_that_stays_away_ends_ownership_after_a_lease(database: Database) -> None:
    gated = Gated(database.runs)
    async with replica(database, lease=0.1, store=lambda store: gated) as here:  # type: ignore[arg-type,return-value]
        journal = await started(here)
        gated.failures = [StoreUnavailable("away") for _ in range(50)]
        with pytest.raises(StoreUnavailable):
            await journal.fact(THINKING)
        assert not journal.is_open
        with pytest.raises(StoreUnavailable):
            await journal.fact(THINKING)


async def test_a_database_that_says_nothing_ends_ownership_after_a_lease(database: Database) -> None:
    gated = Gated(database.runs)
    async with replica(database, lease=0.1, store=lambda store: gated) as here:  # type: ignore[arg-type,return-value]
        journal = await started(here)
        gated.silent = True
        waiting = asyncio.create_task(interruption(journal))
        with pytest.raises(StoreUnavailable):
            await journal.fact(THINKING)
        assert (await waiting).kind is InterruptKind.OWNERSHIP_LOST


async def test_leases_that_cannot_be_renewed_end_ownership_though_nothing_is_written(database: Database) -> None:
    gated = Gated(database.runs)
    async with replica(database, lease=0.1, store=lambda store: gated) as here:  # type: ignore[arg-type,return-value]
        journal = await started(here)
        gated.silent = True
        async with asyncio.timeout(5):
            assert (await interruption(journal)).kind is InterruptKind.OWNERSHIP_LOST


async def test_a_defect_in_one_runs_write_leaves_the_others_alone(here: Replica, gated: Gated) -> None:
    bad, good = await started(here), await started(here)
    # The first try is the common transaction, the next the bad run's own.
    gated.failures = [RuntimeError("defect"), RuntimeError("defect")]
    results = await asyncio.gather(bad.fact(THINKING), good.fact(THINKING), return_exceptions=True)
    assert [type(result) for result in results] == [RuntimeError, type(None)]
    assert not bad.is_open
    assert good.is_open


async def test_a_defect_while_recording_ends_its_run_only(here: Replica) -> None:
    bad, good = await started(here), await started(here)
    bad._queue.items.append(None)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        await bad.fact(THINKING)
    assert not bad.is_open
    await good.finish(completed())


async def test_an_event_that_cannot_be_encoded_fails_its_own_call_only(here: Replica) -> None:
    journal = await started(here)
    broken = Notice(code="x", text=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await journal.fact(broken)
    await journal.finish(completed())
    assert [event.sequence for event in await here.read(journal.run_id)] == [1]


async def test_a_pause_hands_the_run_back_and_resuming_goes_on_without_a_hole(here: Replica) -> None:
    journal = await started(here)
    await journal.fact(RunPaused(pending=(), deadline=None), state=RunState.PAUSED, release=True)
    assert not journal.is_open
    again = await here.journals.claim(journal.run_id)
    assert again is not None
    assert (again.attempt, again.taken_over, again.last_sequence) == (1, False, 1)
    await again.finish(completed())
    events = await here.read(journal.run_id)
    assert [(event.sequence, event.pause, event.terminal) for event in events] == [(1, True, False), (2, False, True)]


async def test_closing_writes_what_waits(database: Database, sqlite_url: str) -> None:
    async with replica(database, pacing=Pacing(shortest=30, longest=30)) as here:
        journal = await started(here)
        await journal.fact(THINKING)
        journal.delta(answer("a"))
        await asyncio.sleep(0.01)
        journal.delta(answer("b"))
    events = await database.runs.events(journal.run_id, 0, limit=9, max_bytes=9999)
    assert answer_text(list(events)) == "ab"


async def test_a_cancelled_caller_does_not_undo_its_fact(here: Replica, gated: Gated) -> None:
    journal = await started(here)
    fact = await gated.holding(journal.fact(THINKING))
    fact.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fact
    gated.gate.set()
    await journal.finish(completed())
    assert len(await here.read(journal.run_id)) == 2


async def test_congestion_is_told_and_ends_with_the_write(here: Replica, gated: Gated) -> None:
    journal = await started(here)
    gated.gate.clear()
    journal.delta(answer("x"))
    await gated.arrived.wait()
    journal.delta(answer("y" * 1_100_000))
    assert journal.congested
    gated.gate.set()
    await journal.settle()
    assert not journal.congested


async def test_the_conversation_is_written_with_the_end(here: Replica) -> None:
    new = new_run(conversation_id="v1", title="Talk", user_message=text_message(Role.USER, "What?"))
    journal = (await here.journals.admit(new)).journal
    assert journal is not None
    said = replace(text_message(Role.ASSISTANT, "That."), message_id="m1")
    await journal.finish(completed("That."), messages=(said,), tool_memory=b"seen")
    history = await here.database.conversations.history("acme", "ann", "v1")
    assert [message.message.text for message in history] == ["What?", "That."]
    assert history[1].message.message_id == "m1"
    assert (await here.database.runs.load_checkpoint(journal.run_id)).tool_memory == b"seen"


async def test_the_first_events_are_admitted_with_the_run(here: Replica, gated: Gated) -> None:
    gated.gate.clear()
    journal = (await here.journals.admit(new_run(), THINKING)).journal
    assert journal is not None
    assert decoded(await first_batch(here, journal.run_id)) == [THINKING]
    assert decoded([*await here.database.runs.events(journal.run_id, 0, limit=9, max_bytes=999)]) == [THINKING]
    gated.gate.set()
    await journal.finish(completed())
    assert [e.sequence for e in await here.read(journal.run_id)] == [1, 2]


async def test_a_release_that_comes_through_after_the_run_was_lost_leaves_its_next_leg_alone(
    here: Replica, gated: Gated
) -> None:
    journal = await started(here)
    gated.gate.clear()
    release = asyncio.create_task(journal.fact(THINKING, release=True))
    await gated.arrived.wait()
    journal.give_up()
    # Another handle of this process leads the run by now.
    tail = here.feed.tail(journal.run_id)
    tail.open(7)
    gated.gate.set()
    await release
    assert tail.floor == 7
