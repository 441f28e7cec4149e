"""Reading runs: resume points, slow readers, bounded memory, ownership that changes under a reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from types import SimpleNamespace

import pytest

from services.chassis.errors import Unavailable
from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.codec_events import decode, stamped
from services.orchestrator.domain.events import Notice, StampedEvent
from services.orchestrator.journal.feed import KEPT, FeedLimits, Tail
from services.orchestrator.journal.journal import RunJournal
from tests.support.journal_kit import Replica, answer, answer_text, completed, decoded, new_run, replica

LIMITS = FeedLimits(poll=0.2, tail_bytes=4096, batch_bytes=1024, batch_events=50, join_from=4)


@pytest.fixture
async def here(database: Database) -> AsyncIterator[Replica]:
    async with replica(database, limits=LIMITS) as made:
        yield made


async def started(here: Replica) -> RunJournal:
    journal = (await here.journals.admit(new_run())).journal
    assert journal is not None
    return journal


def note(n: int) -> Notice:
    return Notice(code="n", text=f"{n:04}")


async def test_resuming_after_any_event_gives_exactly_what_follows(here: Replica) -> None:
    journal = await started(here)
    readers = []
    for n in range(30):
        await journal.fact(note(n))
        readers.append(asyncio.create_task(here.read(journal.run_id, after=n)))
    await journal.finish(completed())
    for cursor, reader in enumerate(readers):
        assert [event.sequence for event in await reader] == list(range(cursor + 1, 32))
    for cursor in range(32):
        assert [e.sequence for e in await here.read(journal.run_id, after=cursor)] == list(range(cursor + 1, 32))


async def test_a_replay_ends_where_the_kept_events_end(here: Replica) -> None:
    journal = await started(here)
    assert await here.read(journal.run_id, live=False) == []
    await journal.fact(note(1), note(2))
    assert decoded(await here.read(journal.run_id, live=False)) == [note(1), note(2)]
    assert decoded(await here.read(journal.run_id, after=1, live=False)) == [note(2)]


async def test_a_reader_that_stops_reading_costs_no_more_and_misses_nothing(here: Replica) -> None:
    journal = await started(here)
    tail = here.feed.tail(journal.run_id)
    written = []
    async with aclosing(here.feed.watch(journal.run_id)) as watching:
        journal.delta(answer("first,"))
        seen: list[StampedEvent] = list(await anext(watching))
        for n in range(80):
            piece = f"{n} " + "x" * 50 + ","
            written.append(piece)
            journal.delta(answer(piece))
            await journal.settle()
            assert sum(len(event.payload) for event in tail.after(tail.floor or 0, FeedLimits()) or ()) <= 4096
        await journal.finish(completed())
        async for batch in watching:
            assert len(batch) == 1 or sum(len(event.payload) for event in batch) <= 1024
            seen += batch
    assert answer_text(seen) == "first," + "".join(written)
    assert seen[-1].terminal
    # Its deltas were joined: it got far fewer events than were written.
    assert len(seen) < 100


async def test_nothing_is_kept_for_runs_that_nobody_writes_or_reads(here: Replica) -> None:
    tails = here.feed._tails
    journal = await started(here)
    assert list(tails) == [journal.run_id]
    reader = asyncio.create_task(here.read(journal.run_id))
    await journal.fact(note(1))
    await journal.finish(completed())
    await reader
    assert tails == {}
    await here.read(journal.run_id)
    assert tails == {}


async def test_a_reader_that_leaves_is_forgotten(here: Replica) -> None:
    journal = await started(here)
    await journal.fact(note(1))
    async with aclosing(here.feed.watch(journal.run_id)) as watching:
        await anext(watching)
        assert here.feed.tail(journal.run_id).readers == 1
    assert here.feed.tail(journal.run_id).readers == 0


async def test_readers_go_on_when_the_run_changes_hands(here: Replica, database: Database) -> None:
    journal = await started(here)
    await journal.fact(note(1))
    reader = asyncio.create_task(here.read(journal.run_id))
    await asyncio.sleep(0)
    await database.runs.disown_all()
    again = await here.journals.claim(journal.run_id)
    assert again is not None
    await again.fact(note(2))
    await again.hand_back()
    third = await here.journals.claim(journal.run_id)
    assert third is not None
    await third.finish(completed())
    events = await reader
    assert decoded(events) == [note(1), note(2), completed()]
    assert [(decode(e.payload).attempt, e.sequence) for e in events] == [(1, 1), (2, 257), (2, 258)]


async def test_a_thousand_readers_share_one_tail(here: Replica) -> None:
    journal = await started(here)
    readers = [asyncio.create_task(here.read(journal.run_id)) for _ in range(1000)]
    for n in range(5):
        await journal.fact(note(n))
    await journal.finish(completed())
    assert {tuple(event.sequence for event in events) for events in await asyncio.gather(*readers)} == {
        (1, 2, 3, 4, 5, 6)
    }


def test_a_tail_that_was_trimmed_sends_old_cursors_to_the_store() -> None:
    tail = Tail(max_bytes=100)
    tail.open(0)
    for sequence in range(1, 21):
        tail.publish([stamped(sequence, 33, b"x" * 20)])
    assert tail.floor is not None
    assert tail.floor > 10
    assert tail.after(tail.floor - 1, FeedLimits()) is None
    kept = tail.after(tail.floor, FeedLimits())
    assert kept is not None
    assert [event.sequence for event in kept] == list(range(tail.floor + 1, 21))


def test_the_last_events_of_a_run_that_is_handed_on_stay_for_who_was_about_to_take_them() -> None:
    tail = Tail(max_bytes=10_000)
    tail.open(3)
    for sequence in range(260, 272):
        tail.publish([stamped(sequence, 33, b"x")])
    tail.hand_on()
    kept = tail.after(269, FeedLimits())
    assert kept is not None
    assert [event.sequence for event in kept] == [270, 271]
    # What is older, and what others may write now, is in the store.
    assert tail.after(271 - KEPT, FeedLimits()) is not None
    assert tail.after(271 - KEPT - 1, FeedLimits()) is None
    assert tail.after(271, FeedLimits()) is None


def test_all_events_of_a_short_leg_stay_after_it() -> None:
    tail = Tail(max_bytes=10_000)
    tail.open(3)
    tail.publish([stamped(260, 33, b"x")])
    tail.hand_on()
    kept = tail.after(3, FeedLimits())
    assert kept is not None
    assert [event.sequence for event in kept] == [260]
    assert tail.after(2, FeedLimits()) is None


async def test_a_reader_gets_the_pause_without_asking_the_store(here: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = await started(here)
    await journal.fact(note(1))
    async with aclosing(here.feed.watch(journal.run_id)) as watching:
        await anext(watching)
        waiting = asyncio.ensure_future(anext(watching))
        await asyncio.sleep(0)
        monkeypatch.setattr(here.feed, "_log", None)
        await journal.fact(note(2), release=True)
        assert decoded(await waiting) == [note(2)]


def test_an_event_larger_than_the_tail_passes_through_the_store() -> None:
    tail = Tail(max_bytes=100)
    tail.open(0)
    tail.publish([stamped(1, 33, b"x" * 500)])
    assert tail.after(0, FeedLimits()) is None
    assert tail.after(1, FeedLimits()) == []


async def test_a_closing_process_sends_readers_elsewhere_once_they_have_all(here: Replica) -> None:
    journal = await started(here)
    await journal.fact(Notice(code="n", text="1"))
    async with aclosing(here.feed.watch(journal.run_id)) as watching:
        assert [e.sequence for e in await anext(watching)] == [1]
        waiting = asyncio.ensure_future(anext(watching))
        await asyncio.sleep(0)
        here.feed.close()
        with pytest.raises(Unavailable):
            await waiting
    async with aclosing(here.feed.watch(journal.run_id)) as late:
        assert [e.sequence for e in await anext(late)] == [1]


async def test_an_end_that_comes_while_a_reader_looks_for_more_is_not_missed(here: Replica, database: Database) -> None:
    journal = await started(here)
    await journal.fact(note(1))
    await journal.hand_back()
    ended = False

    async def events(run_id: str, after: int, *, limit: int, max_bytes: int) -> Sequence[StampedEvent]:
        nonlocal ended
        page = await database.runs.events(run_id, after, limit=limit, max_bytes=max_bytes)
        if not page and not ended:
            ended = True
            again = await here.journals.claim(run_id)
            assert again is not None
            await again.finish(completed())
        return page

    here.feed._log = SimpleNamespace(events=events, status=database.runs.status)
    assert decoded(await here.read(journal.run_id)) == [note(1), completed()]
    assert ended
