"""Executions and owners of sessions, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.database import migrate, open_engine
from services.sandbox.adapters.sql_executions import SqlExecutions
from services.sandbox.adapters.sql_sessions import SqlSessions
from services.sandbox.adapters.tables import metadata
from services.sandbox.domain import (
    ArtifactChunk,
    DroppedFile,
    Event,
    Finished,
    Limits,
    Output,
    Owner,
    Session,
    Started,
    Status,
    Stream,
)
from services.sandbox.ports import Record, State

ANN, BOB = Owner(tenant="t", user="ann"), Owner(tenant="t", user="bob")
NOW = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
LIMITS = Limits(wall=1.5, cpu=2.5, memory_bytes=4 << 30, pids=5)
EVENTS: list[Event] = [
    Started(warm=True, queued=0.25),
    Output(stream=Stream.STDOUT, sequence=1, data=b"\x00\xff out"),
    Output(stream=Stream.STDERR, sequence=1, data=b"err"),
    *(ArtifactChunk(name="数.bin", data=bytes([n]) * 1000, last=n == 69) for n in range(70)),
    Finished(
        status=Status.TIMEOUT,
        exit_code=130,
        cpu=1.5,
        wall=2.5,
        peak_memory_bytes=5 << 30,
        stdout_truncated=True,
        dropped=(DroppedFile(name="a", reason="b"),),
        state_lost=True,
        detail="d",
    ),
]


@pytest_asyncio.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    engine = open_engine(database_url)
    await migrate(engine, "services.sandbox:migrations")
    yield engine
    await engine.dispose()


def record(execution_id: str = "e", owner: Owner = ANN, **changes: object) -> Record:
    fields: dict[str, object] = {"digest": "d", "state": State.RUNNING, "node": "n", "boot": "b", "created_at": NOW}
    return Record(execution_id=execution_id, owner=owner, **{**fields, **changes})  # type: ignore[arg-type]


async def replayed(store: SqlExecutions, owner: Owner = ANN, execution_id: str = "e") -> list[Event]:
    return [event async for event in store.replay(owner, execution_id)]


async def test_the_first_claim_of_an_id_wins(engine: AsyncEngine) -> None:
    store = SqlExecutions(engine)
    assert await store.claim(record()) is None
    assert await store.claim(record(owner=BOB, digest="other")) == record()
    assert await store.claim(record(owner=Owner(tenant="t2", user="ann"))) is None


async def test_a_released_id_is_free_again_and_a_finished_one_is_kept(engine: AsyncEngine) -> None:
    store = SqlExecutions(engine)
    await store.claim(record())
    await store.release(record())
    assert await store.claim(record()) is None
    await store.finish(record(), EVENTS[-1:], NOW)
    await store.release(record())
    assert await store.claim(record()) is not None


async def test_events_come_back_as_they_were(engine: AsyncEngine) -> None:
    store = SqlExecutions(engine)
    await store.claim(record())
    await store.finish(record(), EVENTS, NOW)
    assert await replayed(store) == EVENTS
    found = await store.claim(record())
    assert found is not None
    assert found.state is State.FINISHED


async def test_only_earlier_boots_of_the_same_node_are_abandoned(engine: AsyncEngine) -> None:
    store = SqlExecutions(engine)
    await store.claim(record("old", boot="b0"))
    await store.claim(record("mine", boot="b1"))
    await store.claim(record("elsewhere", boot="b0", node="n2"))
    lost = Finished(status=Status.SANDBOX_ERROR, detail="lost")
    assert await store.abandon("n", "b1", lost, NOW) == 1
    assert await replayed(store, execution_id="old") == [lost]
    for name in ("mine", "elsewhere"):
        found = await store.claim(record(name))
        assert found is not None
        assert found.state is State.RUNNING


async def test_pruning_forgets_old_results_whole(engine: AsyncEngine) -> None:
    store = SqlExecutions(engine)
    for name, at in (("old", NOW - timedelta(hours=2)), ("new", NOW)):
        await store.claim(record(name))
        await store.finish(record(name), EVENTS[-1:], at)
    await store.claim(record("running"))
    assert await store.prune(NOW - timedelta(hours=1)) == 1
    assert await replayed(store, execution_id="old") == []
    assert await store.claim(record("old")) is None
    assert await replayed(store, execution_id="new") == EVENTS[-1:]
    assert await store.claim(record("running")) is not None


def session(session_id: str, owner: Owner = ANN, used: datetime = NOW, **changes: object) -> Session:
    fields: dict[str, object] = {"node": "n", "limits": LIMITS, "created_at": NOW}
    return Session(session_id=session_id, owner=owner, used_at=used, **{**fields, **changes})  # type: ignore[arg-type]


async def test_a_session_is_found_by_its_owner_only(engine: AsyncEngine) -> None:
    store = SqlSessions(engine)
    await store.add(session("s"))
    assert await store.find("s", ANN) == session("s")
    assert await store.find("s", BOB) is None
    assert await store.find("s", Owner(tenant="t2", user="ann")) is None
    await store.remove("s")
    assert await store.find("s", ANN) is None


async def test_sessions_are_listed_least_recently_used_first(engine: AsyncEngine) -> None:
    store = SqlSessions(engine)
    for number in range(3):
        await store.add(session(f"s{number}", used=NOW + timedelta(seconds=number)))
    await store.add(session("other", BOB))
    await store.touch("s0", NOW + timedelta(minutes=1))
    assert [found.session_id for found in await store.of_owner(ANN, "n")] == ["s1", "s2", "s0"]
    assert await store.count("n") == 4
    assert await store.of_owner(ANN, "n2") == []


async def test_stale_sessions_are_idle_or_old(engine: AsyncEngine) -> None:
    store = SqlSessions(engine)
    await store.add(session("idle", used=NOW - timedelta(hours=1)))
    await store.add(session("old", created_at=NOW - timedelta(hours=3)))
    await store.add(session("fresh"))
    stale = await store.stale("n", used_before=NOW - timedelta(minutes=20), created_before=NOW - timedelta(hours=2))
    assert {found.session_id for found in stale} == {"idle", "old"}
    await store.clear("n")
    assert await store.count("n") == 0


async def test_the_tables_are_what_the_migrations_make(engine: AsyncEngine) -> None:
    import sqlalchemy as sa

    async with engine.connect() as connection:
        made = await connection.run_sync(
            lambda sync: {
                table: {column["name"] for column in sa.inspect(sync).get_columns(table)}
                for table in sa.inspect(sync).get_table_names()
            }
        )
    for table in metadata.sorted_tables:
        assert made[table.name] == {column.name for column in table.columns}
