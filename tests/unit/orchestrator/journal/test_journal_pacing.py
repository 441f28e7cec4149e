"""How texts gather: a run's facts are committed at once, and take no other run's texts along before their time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.domain.events import AnswerDelta, Stage, StageChanged
from services.orchestrator.journal.feed import FeedLimits
from services.orchestrator.journal.journal import RunJournal
from services.orchestrator.journal.writer import Pacing
from tests.support.journal_kit import Replica, answer, answer_text, decoded, new_run, replica

THINKING = StageChanged(stage=Stage.THINKING, text="Thinking")


@pytest.fixture
async def patient(database: Database) -> AsyncIterator[Replica]:
    """A journal whose texts gather for longer than any test takes."""
    async with replica(database, pacing=Pacing(shortest=3600, longest=3600)) as made:
        yield made


async def started(here: Replica) -> RunJournal:
    journal = (await here.journals.admit(new_run())).journal
    assert journal is not None
    # The first commit of all is one of everything.
    await journal.fact(THINKING)
    return journal


def shown(here: Replica, journal: RunJournal) -> str:
    """Return the text that readers see by now."""
    return answer_text(list(journal.tail.after(0, FeedLimits()) or ()))


async def test_a_fact_takes_no_other_runs_texts_along(patient: Replica) -> None:
    talking, acting = await started(patient), await started(patient)
    talking.delta(answer("one"))
    for text in (" two", " three"):
        await acting.fact(THINKING)
        talking.delta(answer(text))
    await acting.fact(THINKING)
    assert shown(patient, talking) == "one"
    await talking.settle()
    kept = await patient.read(talking.run_id, live=False)
    assert [event.text for event in decoded(kept) if isinstance(event, AnswerDelta)] == ["one", " two three"]


async def test_a_fact_takes_the_texts_of_its_own_run_along(patient: Replica) -> None:
    talking = await started(patient)
    for text in ("one", " two"):
        talking.delta(answer(text))
        await talking.fact(THINKING)
    assert shown(patient, talking) == "one two"


async def test_the_first_piece_of_a_text_waits_for_nobody(patient: Replica) -> None:
    talking = await started(patient)
    talking.delta(answer("one"))
    assert shown(patient, talking) == "one"


async def test_texts_have_their_turn_however_urgent_others_are(database: Database) -> None:
    async with replica(database, pacing=Pacing(shortest=0.01, longest=0.01)) as here:
        talking, acting = await started(here), await started(here)
        talking.delta(answer("one"))
        await acting.fact(THINKING)
        talking.delta(answer(" two"))
        async with asyncio.timeout(10):
            while shown(here, talking) != "one two":
                await acting.fact(THINKING)


async def test_what_gathers_is_written_at_the_end(database: Database) -> None:
    async with replica(database, pacing=Pacing(shortest=3600, longest=3600)) as here:
        talking, acting = await started(here), await started(here)
        talking.delta(answer("one"))
        await acting.fact(THINKING)
        talking.delta(answer(" two"))
        await acting.fact(THINKING)
        assert shown(here, talking) == "one"
    async with replica(database, "two") as there:
        assert answer_text(await there.read(talking.run_id, live=False)) == "one two"
