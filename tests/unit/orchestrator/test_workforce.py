"""Runs this replica leads: a failure between claim and leg strands nobody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from services.orchestrator.slots import FairSlots, SlotLimits
from services.orchestrator.workforce import Workforce
from tests.support.clock import FakeClock, SequentialIds


class Claimed:
    """A journal handle that notes whether it was given up."""

    attempt = 1
    taken_over = False
    run_id = "r1"

    def __init__(self) -> None:
        self.given_up = False

    def give_up(self) -> None:
        self.given_up = True


def workforce(journal: Claimed, **store: Any) -> Workforce:
    async def claim(run_id: str) -> Claimed:
        return journal

    return Workforce(
        runner=SimpleNamespace(),  # type: ignore[arg-type]
        store=SimpleNamespace(**store),
        journals=SimpleNamespace(claim=claim),  # type: ignore[arg-type]
        conversations=SimpleNamespace(),
        slots=FairSlots(SlotLimits()),
        clock=FakeClock(),
        ids=SequentialIds(),
    )


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

    async def interrupted() -> None:
        raise AssertionError("not reached")

    journal.interrupted = interrupted  # type: ignore[attr-defined]
    spec = SimpleNamespace(run_id="r1", principal=SimpleNamespace(tenant="t"), conversation_id="c")
    force.begin(journal, spec, SimpleNamespace(), SimpleNamespace(cause=""))  # type: ignore[arg-type]
    task = force._jobs["r1"].task
    with pytest.raises(AttributeError):
        await task
    assert journal.given_up
    assert force.active == 0
