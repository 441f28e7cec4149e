"""The run store's contract, on SQLite and PostgreSQL: reading events, retention, one SQLite owner."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from services.chassis.clock import SystemClock
from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.adapters.sql.exclusive import DatabaseHeld
from services.orchestrator.domain.events import Notice, RunCompleted
from services.orchestrator.domain.run import EventsPruned, RunNotFound, RunState
from services.orchestrator.journal.feed import FeedLimits
from services.orchestrator.journal.journal import RunJournal
from tests.support.journal_kit import Replica, answer, answer_text, completed, decoded, environment, new_run, replica

BIG = 1_000_000


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(database_url, SystemClock())
    yield opened
    await opened.close()


@pytest.fixture
async def here(database: Database) -> AsyncIterator[Replica]:
    async with replica(database) as made:
        yield made


async def started(here: Replica, run_id: str = "") -> RunJournal:
    journal = (await here.journals.admit(new_run(run_id))).journal
    assert journal is not None
    return journal


async def finished_run(here: Replica, run_id: str = "") -> str:
    journal = await started(here, run_id)
    await journal.fact(Notice(code="n", text="1"))
    await journal.fact(Notice(code="n", text="2"))
    await journal.finish(completed())
    return journal.run_id


async def test_pages_are_bounded_by_count_and_by_bytes(here: Replica, database: Database) -> None:
    journal = await started(here)
    await journal.fact(*(Notice(code="n", text="x" * 1000) for _ in range(10)))
    page = await database.runs.events(journal.run_id, 0, limit=4, max_bytes=BIG)
    assert [event.sequence for event in page] == [1, 2, 3, 4]
    page = await database.runs.events(journal.run_id, 4, limit=99, max_bytes=2500)
    assert [event.sequence for event in page] == [5, 6]
    page = await database.runs.events(journal.run_id, 6, limit=99, max_bytes=1)
    assert [event.sequence for event in page] == [7]
    assert await database.runs.events(journal.run_id, 10, limit=99, max_bytes=BIG) == []


async def test_events_of_a_run_that_never_existed_are_not_found(here: Replica, database: Database) -> None:
    with pytest.raises(RunNotFound):
        await database.runs.events("nowhere", 0, limit=9, max_bytes=BIG)
    with pytest.raises(RunNotFound):
        await here.read("nowhere")
    with pytest.raises(RunNotFound):
        await database.runs.status("nowhere")
    with pytest.raises(RunNotFound):
        await database.runs.load_checkpoint("nowhere")


async def test_a_pruned_run_keeps_its_terminal_event_and_says_what_is_gone(here: Replica, database: Database) -> None:
    run_id = await finished_run(here)
    later = SystemClock().now() + timedelta(seconds=1)
    assert await database.runs.prune_events(later) == 1
    assert await database.runs.prune_events(later) == 0
    run = await database.runs.get("acme", run_id)
    assert (run.oldest_sequence, run.last_sequence) == (3, 3)
    with pytest.raises(EventsPruned) as raised:
        await here.read(run_id)
    assert raised.value.metadata == {"run_id": run_id, "oldest": "3"}
    with pytest.raises(EventsPruned):
        await here.read(run_id, after=1)
    (last,) = await here.read(run_id, after=2)
    assert isinstance(decoded([last])[0], RunCompleted)
    assert await here.read(run_id, after=3) == []
    with pytest.raises(RunNotFound):
        await database.runs.load_checkpoint(run_id)


async def test_only_runs_that_ended_before_are_pruned_or_deleted(here: Replica, database: Database) -> None:
    run_id = await finished_run(here)
    working = await started(here)
    await working.fact(Notice(code="n", text="1"))
    earlier, later = SystemClock().now() - timedelta(hours=1), SystemClock().now() + timedelta(hours=1)
    assert await database.runs.prune_events(earlier) == 0
    assert await database.runs.delete_runs(earlier) == 0
    assert await database.runs.delete_runs(later) == 1
    with pytest.raises(RunNotFound):
        await database.runs.get("acme", run_id)
    with pytest.raises(RunNotFound):
        await here.read(run_id)
    assert (await database.runs.get("acme", working.run_id)).state is RunState.RUNNING
    assert len(await database.runs.events(working.run_id, 0, limit=9, max_bytes=BIG)) == 1


async def test_retention_works_through_runs_in_pages(here: Replica, database: Database) -> None:
    for _ in range(5):
        await finished_run(here)
    later = SystemClock().now() + timedelta(hours=1)
    assert [await database.runs.prune_events(later, limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert [await database.runs.delete_runs(later, limit=3) for _ in range(3)] == [3, 2, 0]


async def test_a_cursor_inside_a_hole_is_valid(here: Replica, database: Database) -> None:
    journal = await started(here)
    await journal.fact(Notice(code="n", text="1"))
    if database.engine.dialect.name == "sqlite":
        await database.runs.disown_all()
        again = await here.journals.claim(journal.run_id)
        assert again is not None
        await again.finish(completed())
        assert [event.sequence for event in await here.read(journal.run_id)] == [1, 257]
        for cursor in (1, 2, 100, 256):
            assert [event.sequence for event in await here.read(journal.run_id, after=cursor)] == [257]
        assert await here.read(journal.run_id, after=257) == []
        assert await here.read(journal.run_id, after=9999) == []


@pytest.mark.parametrize("thousands", [10, pytest.param(100, marks=pytest.mark.prove)])
async def test_a_run_of_very_many_events_is_read_in_bounded_batches(database: Database, thousands: int) -> None:
    limits = FeedLimits(poll=0.2, tail_bytes=64 * 1024, batch_bytes=32 * 1024, batch_events=500)
    async with replica(database, limits=limits) as here:
        journal = await started(here)
        facts = [Notice(code="n", text=str(n)) for n in range(1_000)]
        for _ in range(thousands):
            await journal.fact(*facts)
        await journal.finish(completed())
        count, largest, last = 0, 0, 0
        async for batch in here.feed.watch(journal.run_id):
            assert batch[0].sequence == last + 1
            last = batch[-1].sequence
            count += len(batch)
            largest = max(largest, sum(len(event.payload) for event in batch))
        assert (count, last) == (thousands * 1000 + 1, thousands * 1000 + 1)
        assert largest <= 32 * 1024


async def test_stored_deltas_are_joined_for_a_reader_who_comes_late(here: Replica, database: Database) -> None:
    journal = await started(here)
    for n in range(60):
        journal.delta(answer(f"{n},"))
        await journal.settle()
    await journal.finish(completed())
    stored = await database.runs.events(journal.run_id, 0, limit=999, max_bytes=BIG)
    assert len(stored) == 61
    late = await here.read(journal.run_id)
    assert len(late) == 2
    assert answer_text(late) == answer_text(list(stored))
    assert late[0].sequence == 60


async def test_a_second_process_on_one_sqlite_file_is_refused_by_name(sqlite_url: str) -> None:
    first = await Database.open(sqlite_url, SystemClock())
    path = Path(first.engine.url.database or "")
    code = (
        "import asyncio, sys\n"
        "from services.chassis.clock import SystemClock\n"
        "from services.orchestrator.adapters.sql.database import Database\n"
        "asyncio.run(Database.open(sys.argv[1], SystemClock()))\n"
    )
    second = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, sqlite_url, stderr=asyncio.subprocess.PIPE, env=environment()
    )
    _, told = await second.communicate()
    assert second.returncode != 0
    assert f"'{path}' is held by process" in told.decode()
    assert "PROCTOR_ORCHESTRATOR_DATABASE_URL" in told.decode()
    with pytest.raises(DatabaseHeld):
        await Database.open(sqlite_url, SystemClock())
    await first.close()
    again = await Database.open(sqlite_url, SystemClock())
    await again.close()
