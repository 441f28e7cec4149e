"""Runs this replica leads: a failure between claim and leg strands nobody."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from services.orchestrator.codec_events import EventEncoder, kind_of, stamped
from services.orchestrator.continuation import encode
from services.orchestrator.dedup import ConversationMemory
from services.orchestrator.domain.events import AnswerRetracted, Event, RunFailed, Stage, StageChanged, StampedEvent
from services.orchestrator.domain.run import Checkpoint, OnRetraction
from services.orchestrator.domain.state import Phase
from services.orchestrator.journal.ports import SavedState, StoreUnavailable
from services.orchestrator.runner import LegEnd, Start
from services.orchestrator.slots import FairSlots, SlotLimits
from services.orchestrator.speak import THINKING
from services.orchestrator.workforce import SENDING, Workforce
from tests.support.clock import FakeClock, SequentialIds
from tests.support.orchestrator_kit import START, bench


class Claimed:
    """A journal handle that notes whether it was given up."""

    attempt = 1
    run_id = "r1"
    last_sequence = 1
    epoch = 2

    def __init__(self, *, taken_over: bool = False) -> None:
        self.given_up = False
        self.taken_over = taken_over
        self.told: list[Event] = []

    async def fact(self, *events: Event, **rest: object) -> None:
        self.told += events

    async def finish(self, event: Event) -> None:
        self.told.append(event)

    def give_up(self) -> None:
        self.given_up = True

    def when_interrupted(self, stop: object) -> None:
        pass


def workforce(journal: Claimed, **store: Any) -> Workforce:
    async def claim(run_id: str) -> Claimed:
        return journal

    return Workforce(
        runner=SimpleNamespace(),  # type: ignore[arg-type]
        store=SimpleNamespace(**store),
        journals=SimpleNamespace(claim=claim),  # type: ignore[arg-type]
        slots=FairSlots(SlotLimits()),
        clock=FakeClock(),
        ids=SequentialIds(),
    )


def saved_state(saved: Checkpoint, epoch: int = 0) -> SavedState:
    return SavedState(head=saved.head, segments={s.digest: s.content for s in saved.new_segments}, epoch=epoch)


async def test_a_claimed_run_whose_state_cannot_be_loaded_is_given_up() -> None:
    async def load_checkpoint(run_id: str) -> None:
        raise ConnectionError("the database is away")

    journal = Claimed()
    with pytest.raises(ConnectionError):
        await workforce(journal, load_checkpoint=load_checkpoint).take_up("r1", "decision")
    assert journal.given_up


async def test_a_leg_that_breaks_before_it_leads_is_given_up() -> None:
    journal = Claimed()
    force = workforce(journal)

    spec = SimpleNamespace(
        run_id="r1", principal=SimpleNamespace(tenant="t"), conversation_id="c", on_retraction=OnRetraction.EMIT
    )
    force.begin(journal, spec, SimpleNamespace(), Start(), ConversationMemory())  # type: ignore[arg-type]
    task = force._jobs["r1"].task
    with pytest.raises(AttributeError):
        await task
    assert journal.given_up
    assert force.active == 0


@pytest.mark.parametrize(
    ("taken_over", "on_retraction", "phase", "withdrawn"),
    [
        # The dead owner may have shown text before a word of the call was committed.
        (True, OnRetraction.EMIT, Phase.PREPARE, True),
        (True, OnRetraction.EMIT, Phase.ROUND_START, True),
        # The reply stood in a checkpoint already.
        (True, OnRetraction.EMIT, Phase.CALLS, False),
        # Text waited for the stage before it, and there is none.
        (True, OnRetraction.FAIL, Phase.ROUND_START, False),
        # An owner that hands a run back leaves nothing unsaid.
        (False, OnRetraction.EMIT, Phase.ROUND_START, False),
    ],
)
async def test_what_a_dead_owner_may_have_shown_is_withdrawn(
    *, taken_over: bool, on_retraction: OnRetraction, phase: Phase, withdrawn: bool
) -> None:
    leg = bench(on_retraction=on_retraction).leg
    leg.progress.phase, leg.progress.next_call_id = phase, "announced"
    saved = encode(leg.spec, leg.progress, START)

    async def load_checkpoint(run_id: str) -> SavedState:
        return saved_state(saved)

    async def events(run_id: str, after: int, *, limit: int, max_bytes: int) -> list[object]:
        return []

    journal = Claimed(taken_over=taken_over)
    force = workforce(journal, load_checkpoint=load_checkpoint, events=events)
    force.begin = lambda *began: None  # type: ignore[method-assign]
    assert await force.take_up("r1", "recovery")
    assert not any(isinstance(event, RunFailed) for event in journal.told)
    assert [e.model_call_id for e in journal.told if isinstance(e, AnswerRetracted)] == ["announced"] * withdrawn


async def test_steps_that_were_thinking_fail_no_run_whose_answer_had_not_begun() -> None:
    leg = bench(on_retraction=OnRetraction.FAIL).leg
    leg.progress.phase, leg.progress.next_call_id = Phase.PREPARE, "announced"
    leg.branch("s1", leg.spec)
    saved = encode(leg.spec, leg.progress, START)
    thinking = StageChanged(stage=Stage.THINKING, text="Thinking")
    payload = EventEncoder("r1", attempt=1).encode(thinking, sequence=2, at=START, step_id="s1")

    async def load_checkpoint(run_id: str) -> SavedState:
        return saved_state(saved)

    async def events(run_id: str, after: int, *, limit: int, max_bytes: int) -> list[StampedEvent]:
        return [stamped(2, kind_of(thinking), payload)] if after < 2 else []

    journal = Claimed(taken_over=True)
    force = workforce(journal, load_checkpoint=load_checkpoint, events=events)
    began: list[object] = []
    force.begin = lambda *what: began.append(what)  # type: ignore[method-assign]
    assert await force.take_up("r1", "recovery")
    assert [type(event) for event in journal.told] == [AnswerRetracted]
    assert len(began) == 1


@pytest.mark.parametrize(("phase", "fails"), [(Phase.PREPARE, True), (Phase.ROUND_START, True), (Phase.CALLS, False)])
async def test_a_run_that_cannot_withdraw_text_fails_once_its_first_call_was_announced(
    *, phase: Phase, fails: bool
) -> None:
    leg = bench(on_retraction=OnRetraction.FAIL).leg
    leg.progress.phase, leg.progress.next_call_id = phase, "announced"
    saved = encode(leg.spec, leg.progress, START)
    payload = EventEncoder("r1", attempt=1).encode(THINKING, sequence=2, at=START)

    async def load_checkpoint(run_id: str) -> SavedState:
        return saved_state(saved)

    async def events(run_id: str, after: int, *, limit: int, max_bytes: int) -> list[StampedEvent]:
        return [stamped(2, kind_of(THINKING), payload)] if after < 2 else []

    journal = Claimed(taken_over=True)
    force = workforce(journal, load_checkpoint=load_checkpoint, events=events)
    force.begin = lambda *what: None  # type: ignore[method-assign]
    assert await force.take_up("r1", "recovery")
    assert [event.reason for event in journal.told if isinstance(event, RunFailed)] == ["UNAVAILABLE"] * fails


async def test_the_state_of_an_expected_run_is_read_before_it_is_claimed_and_once() -> None:
    leg = bench().leg
    saved = encode(leg.spec, leg.progress, START)
    reads = 0

    async def load_checkpoint(run_id: str) -> SavedState:
        nonlocal reads
        reads += 1
        return saved_state(saved, epoch=1)

    force = workforce(Claimed(), load_checkpoint=load_checkpoint)
    force.begin = lambda *what: None  # type: ignore[method-assign]
    async with force.expecting("r1"):
        for _ in range(SENDING + 2):
            await asyncio.sleep(0)
        assert reads == 1
        assert await force.take_up("r1", "decision")
    assert reads == 1


async def test_a_state_that_was_replaced_before_the_claim_is_read_again() -> None:
    leg, later = bench().leg, bench().leg
    later.progress.round = 7
    before, after = encode(leg.spec, leg.progress, START), encode(later.spec, later.progress, START)
    states = [saved_state(before, epoch=0), saved_state(after, epoch=1)]

    async def load_checkpoint(run_id: str) -> SavedState:
        return states.pop(0)

    force = workforce(Claimed(), load_checkpoint=load_checkpoint)
    began: list[Any] = []
    force.begin = lambda *what: began.append(what)  # type: ignore[method-assign]
    async with force.expecting("r1"):
        assert await force.take_up("r1", "decision")
    assert began[0][2].round == 7


async def test_a_state_that_could_not_be_read_early_is_read_again() -> None:
    leg = bench().leg
    answers: list[SavedState | StoreUnavailable] = [
        StoreUnavailable("away"),
        saved_state(encode(leg.spec, leg.progress, START), epoch=1),
    ]

    async def load_checkpoint(run_id: str) -> SavedState:
        answer = answers.pop(0)
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer

    force = workforce(Claimed(), load_checkpoint=load_checkpoint)
    force.begin = lambda *what: None  # type: ignore[method-assign]
    async with force.expecting("r1"):
        assert await force.take_up("r1", "decision")
    assert answers == []


async def test_what_was_heard_of_a_run_that_was_not_taken_up_after_all_is_looked_at() -> None:
    looked: list[str] = []

    async def load_checkpoint(run_id: str) -> SavedState:
        raise StoreUnavailable("away")

    force = workforce(Claimed(), load_checkpoint=load_checkpoint)
    force.parked = looked.append
    assert not force.heard("r1")
    async with force.expecting("r1"):
        assert force.heard("r1")
    assert looked == ["r1"]
    async with force.expecting("r1"):
        pass
    assert looked == ["r1"]


@pytest.mark.parametrize("told", [True, False])
async def test_a_run_that_parks_is_looked_at_when_something_was_decided_while_it_worked(*, told: bool) -> None:
    looked: list[str] = []
    journal = Claimed()
    force = workforce(journal)
    force.parked = looked.append

    async def lead(*what: object) -> LegEnd:
        if told:
            assert force.heard("r1")
        return LegEnd.PAUSED

    force._runner.lead = lead  # type: ignore[method-assign, assignment]
    leg = bench().leg
    spec = replace(leg.spec, run_id="r1")
    force.begin(journal, spec, leg.progress, Start(), ConversationMemory())  # type: ignore[arg-type]
    await force._jobs["r1"].task
    assert looked == ["r1"] * told
