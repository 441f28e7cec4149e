"""Several replicas over one PostgreSQL: readers, cancellation, take-over, and a database that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from services.chassis.clock import SystemClock
from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.adapters.sql.signals import NoSignals
from services.orchestrator.adapters.sql.transactions import writing
from services.orchestrator.domain.events import Notice, ToolCallStarted
from services.orchestrator.domain.run import EventsPruned, Fenced, RunCancelRequested
from services.orchestrator.journal.feed import FeedLimits
from services.orchestrator.journal.journal import InterruptKind, RunJournal
from services.orchestrator.journal.ports import StoreUnavailable
from tests.support.journal_kit import Replica, answer, answer_text, completed, decoded, interruption, new_run, replica
from tests.support.postgres import Cluster

NOTE = Notice(code="n", text="x")
# Only a notification can be this quick: polling and renewing are far slower in these tests.
SOON = 5.0
SLOW_POLL = FeedLimits(poll=60)


@pytest.fixture
async def first(postgres_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(postgres_url, SystemClock())
    yield opened
    await opened.close()


@pytest.fixture
async def second(first: Database, postgres_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(postgres_url, SystemClock())
    yield opened
    await opened.close()


@pytest.fixture
async def one(first: Database) -> AsyncIterator[Replica]:
    async with replica(first, owner="one", lease=120, limits=SLOW_POLL) as made:
        yield made


@pytest.fixture
async def two(second: Database) -> AsyncIterator[Replica]:
    async with replica(second, owner="two", lease=120, limits=SLOW_POLL) as made:
        yield made


async def started(here: Replica) -> RunJournal:
    journal = (await here.journals.admit(new_run())).journal
    assert journal is not None
    return journal


async def listening(here: Replica, by: Replica) -> None:
    """Return once `here` hears the other replica's notifications."""
    probe = await started(by)
    async with asyncio.timeout(SOON), aclosing(here.feed.watch(probe.run_id)) as watching:
        hearing = asyncio.ensure_future(anext(watching))
        while not hearing.done():
            await probe.fact(NOTE)
            await asyncio.wait({hearing}, timeout=0.02)
    await probe.finish(completed())


async def test_a_reader_on_another_replica_follows_live(one: Replica, two: Replica) -> None:
    await listening(two, by=one)
    journal = await started(one)
    async with asyncio.timeout(SOON), aclosing(two.feed.watch(journal.run_id)) as watching:
        for n in range(5):
            upcoming = asyncio.ensure_future(anext(watching))
            await asyncio.sleep(0)
            await journal.fact(Notice(code="n", text=str(n)))
            assert decoded(await upcoming) == [Notice(code="n", text=str(n))]
        rest = asyncio.create_task(two.read(journal.run_id, after=3))
        await journal.finish(completed())
        assert [event.sequence for event in await rest] == [4, 5, 6]


async def test_lost_notifications_only_delay_a_reader(first: Database, second: Database) -> None:
    first.signals = second.signals = NoSignals()
    quick = FeedLimits(poll=0.05)
    async with replica(first, owner="one", limits=quick) as one, replica(second, owner="two", limits=quick) as two:
        journal = await started(one)
        reader = asyncio.create_task(two.read(journal.run_id))
        journal.delta(answer("a"))
        await journal.fact(NOTE)
        await asyncio.sleep(0.06)
        await journal.finish(completed())
        async with asyncio.timeout(SOON):
            assert [event.sequence for event in await reader] == [1, 2, 3]


async def test_cancelling_on_any_replica_reaches_the_owner(one: Replica, two: Replica) -> None:
    await listening(one, by=two)
    journal = await started(one)
    interrupted = asyncio.create_task(interruption(journal))
    await asyncio.sleep(0)
    await two.journals.request_cancel("acme", journal.run_id, "bob")
    async with asyncio.timeout(SOON):
        interrupt = await interrupted
    assert (interrupt.kind, interrupt.by) == (InterruptKind.CANCEL_REQUESTED, "bob")
    with pytest.raises(RunCancelRequested):
        await journal.fact(ToolCallStarted(call_id="c", name="t", arguments_json=b"{}"))


async def expire(database: Database, run_id: str) -> None:
    """Let the lease of one run end now."""
    async with database.engine.begin() as connection:
        await connection.exec_driver_sql(f"UPDATE runs SET lease_until = 0 WHERE run_id = '{run_id}'")


async def test_an_owner_hears_that_its_run_was_taken(one: Replica, two: Replica) -> None:
    await listening(one, by=two)
    journal = await started(one)
    journal.delta(answer("half"))
    await journal.fact(NOTE)
    reader = asyncio.create_task(one.read(journal.run_id))
    interrupted = asyncio.create_task(interruption(journal))
    await asyncio.sleep(0)
    await expire(one.database, journal.run_id)
    taken = await two.journals.claim(journal.run_id)
    assert taken is not None
    async with asyncio.timeout(SOON):
        assert (await interrupted).kind is InterruptKind.OWNERSHIP_LOST
        with pytest.raises(Fenced):
            await journal.fact(NOTE)
        await taken.finish(completed())
        # The reader on the old owner's replica goes on with the new owner's events.
        assert [event.sequence for event in await reader] == [1, 2, 257]


async def test_a_zombies_late_texts_are_not_kept(one: Replica, two: Replica) -> None:
    journal = await started(one)
    await journal.fact(NOTE)
    await expire(one.database, journal.run_id)
    taken = await two.journals.claim(journal.run_id)
    assert taken is not None
    journal.delta(answer("from the grave"))
    with pytest.raises(Fenced):
        await journal.settle()
    await taken.finish(completed())
    assert answer_text(await two.read(journal.run_id)) == ""


async def test_an_owner_frozen_inside_a_transaction_does_not_keep_its_run(one: Replica, two: Replica) -> None:
    journal = await started(one)
    await journal.fact(NOTE)
    await expire(one.database, journal.run_id)
    async with one.database.engine.connect() as frozen:
        locked = f"SELECT 1 FROM runs WHERE run_id = '{journal.run_id}' FOR UPDATE"
        await frozen.exec_driver_sql(locked)
        async with asyncio.timeout(SOON):
            assert await two.journals.claim(journal.run_id) is not None
        with pytest.raises(DBAPIError):
            await frozen.exec_driver_sql(locked)
        await frozen.invalidate()


async def test_a_transaction_that_the_server_ends_for_idling_is_a_database_away(one: Replica) -> None:
    with pytest.raises(StoreUnavailable):
        async with writing(one.database.engine) as connection:
            await connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 20"))
            await asyncio.sleep(0.2)
            await connection.execute(text("SELECT 1"))
    journal = await started(one)
    await journal.finish(completed())


async def test_many_replicas_write_their_own_runs_at_once(postgres_url: str, first: Database) -> None:
    async def lead(here: Replica) -> str:
        journal = await started(here)
        for n in range(10):
            journal.delta(answer(f"{n},"))
            await journal.fact(NOTE)
        await journal.finish(completed())
        return journal.run_id

    async with (
        replica(first, owner="a") as a,
        replica(first, owner="b") as b,
        replica(first, owner="c") as c,
    ):
        run_ids = await asyncio.gather(*(lead(here) for here in (a, b, c) for _ in range(10)))
        for run_id in run_ids:
            events = await b.read(run_id)
            assert answer_text(events) == "0,1,2,3,4,5,6,7,8,9,"
            assert [event.terminal for event in events].count(True) == 1


async def test_a_pruned_run_is_explained_on_every_replica(one: Replica, two: Replica) -> None:
    journal = await started(one)
    await journal.fact(NOTE)
    await journal.finish(completed())
    async with one.database.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE runs SET finished_at = 0")
    assert await one.database.runs.prune_events(SystemClock().now()) == 1
    with pytest.raises(EventsPruned):
        await two.read(journal.run_id)


async def test_a_database_that_restarts_loses_and_doubles_nothing(
    one: Replica, two: Replica, postgres: Cluster
) -> None:
    journal = await started(one)
    reader = asyncio.create_task(two.read(journal.run_id))
    writing = asyncio.create_task(_write_notes(journal, 200))
    await asyncio.sleep(0.05)
    await asyncio.to_thread(postgres.restart)
    await writing
    await journal.finish(completed())
    stored = await two.database.runs.events(journal.run_id, 0, limit=999, max_bytes=1_000_000)
    assert [e.text for e in decoded(list(stored)) if isinstance(e, Notice)] == [str(n) for n in range(200)]
    async with asyncio.timeout(30):
        assert [e.text for e in decoded(await reader) if isinstance(e, Notice)] == [str(n) for n in range(200)]


async def _write_notes(journal: RunJournal, count: int) -> None:
    for n in range(count):
        await journal.fact(Notice(code="n", text=str(n)))
        await asyncio.sleep(0)
