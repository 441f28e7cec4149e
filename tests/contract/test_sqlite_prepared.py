"""The short way to SQLite has the outcomes of the plain one: rows, types, counts and errors."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis import sqlite_prepared
from services.chassis.database import SqlConnection, aside, open_engine, transaction
from services.chassis.sqlite_inline import COMMITS_A_CHECKPOINT, MANY_ROWS
from services.chassis.sqlite_log import LogSync
from services.orchestrator.adapters.sql.dialect import Instant, lease

METADATA = sa.MetaData()
THINGS = sa.Table(
    "things",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, unique=True),
    sa.Column("content", sa.LargeBinary),
    sa.Column("facts", sa.JSON),
    sa.Column("at", Instant),
    sa.Column("flag", sa.Boolean),
    sa.Column("share", sa.Float),
)
C = THINGS.c
NOW = datetime(2026, 11, 30, 12, 30, 15, 123456, UTC)
ROWS = [
    {
        "id": n,
        "name": f"thing {n} 世界 \x00 '\"",
        "content": bytes([n, 0, 255]),
        "facts": {"n": [n, None, "…"]},
        "at": NOW + timedelta(microseconds=n) if n % 2 else None,
        "flag": n % 2 == 0,
        "share": n / 3,
    }
    for n in range(1, 6)
]
NAMED = sa.select(C.id, C.name.label("called"), C.at).where(C.id.in_(sa.bindparam("ids", expanding=True)))
UPSERT = sqlite.insert(THINGS)
STATEMENTS: list[tuple[Any, Any]] = [
    (sa.insert(THINGS), ROWS),
    (sa.insert(THINGS).returning(THINGS), {"id": 9, "name": "nine", "facts": [], "flag": True, "at": NOW}),
    (sa.insert(THINGS), [{"id": 10, "name": "ten"}]),
    (sa.insert(THINGS).values(id=11, name="eleven", at=NOW, facts=None), None),
    (sa.insert(THINGS).values([{"id": 12, "name": "twelve"}, {"id": 13, "name": "thirteen"}]), None),
    (sa.select(THINGS).order_by(C.id), None),
    (sa.select(THINGS).where(C.id >= sa.bindparam("least")).order_by(C.id), {"least": 2}),
    (sa.select(THINGS, (C.at > NOW).label("late")).where(C.at.is_not(None)).order_by(C.id), {}),
    (NAMED.order_by(C.id), {"ids": [1, 3]}),
    (NAMED.order_by(C.id), {"ids": [5]}),
    (NAMED.order_by(C.id), {"ids": []}),
    (NAMED.where(C.name != sa.bindparam("other")), {"other": "nine", "ids": [9, 10]}),
    (sa.select(C.name).where(C.id.in_([1, 3]), C.at == NOW + timedelta(microseconds=1)), None),
    (sa.select(C.id).where(sa.tuple_(C.id, C.name).in_([(9, "nine"), (10, "x")])), None),
    (sa.update(THINGS).where(C.id == sa.bindparam("key")).values(facts=sa.bindparam("new")), {"key": 1, "new": [1, 2]}),
    (sa.update(THINGS).where(C.id == sa.bindparam("key")).values(at=sa.bindparam("now", type_=Instant)).returning(C.at),
     {"key": 2, "now": NOW}),
    (sa.update(THINGS).where(C.id == sa.bindparam("key")).values(name=sa.bindparam("to")),
     [{"key": 3, "to": "three"}, {"key": 4, "to": "four"}]),
    (sa.update(THINGS).where(C.id.in_([1, 3])).values(name=C.name + "!"), {}),
    (sa.update(THINGS).values(flag=None).returning(C.id, C.facts), {}),
    (UPSERT.on_conflict_do_nothing(), {"id": 1, "name": "taken"}),
    (UPSERT.on_conflict_do_update(index_elements=["id"], set_={"name": UPSERT.excluded.name}),
     {"id": 1, "name": "one"}),
    (sa.delete(THINGS).where(C.name == "nobody"), {}),
    (sa.select(sa.func.count(), sa.func.max(C.at)).select_from(THINGS), {}),
    (sa.union(sa.select(C.id, C.at).where(C.id == 2), sa.select(C.id, C.at).where(C.id == 9)), {}),
    (sa.select(C.id).where(C.name.regexp_match("^t[hw]")).order_by(C.id).limit(2), {}),
    (sa.select(sa.exists().where(C.id == 1)), {}),
    (sa.text("select id, name from things where id = :id"), {"id": 9}),
    (sa.select(C.id).where(C.id == 1).with_for_update(skip_locked=True), {}),
]  # fmt: skip


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    made = await made_at(tmp_path / "prepared.sqlite3")
    yield made
    await made.dispose()


async def made_at(path: Path) -> AsyncEngine:
    made = open_engine(f"sqlite:///{path}")
    async with made.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    return made


async def outcome(connection: SqlConnection, statement: Any, parameters: Any) -> Any:
    result: Any = await connection.execute(statement, parameters)
    if not result.returns_rows:
        return result.rowcount
    rows = result.all()
    return [(tuple(row), [type(value) for value in row]) for row in rows]


async def test_every_outcome_is_that_of_the_plain_path(engine: AsyncEngine, tmp_path: Path) -> None:
    plain = await made_at(tmp_path / "plain.sqlite3")
    async with plain.begin() as connection:
        expected = [await outcome(connection, *statement) for statement in STATEMENTS]
    for _ in range(2):  # the second time every form is known
        async with transaction(engine) as prepared:
            assert isinstance(prepared, sqlite_prepared.PreparedConnection)
            assert [await outcome(prepared, *statement) for statement in STATEMENTS] == expected
            await prepared.execute(sa.delete(THINGS))
    await plain.dispose()


async def test_rows_are_read_in_all_the_ways_that_services_read_them(engine: AsyncEngine, tmp_path: Path) -> None:
    plain = await made_at(tmp_path / "plain.sqlite3")
    query = sa.select(C.id, C.name.label("called"), C.at).order_by(C.id)

    async def read(connection: Any) -> list[Any]:
        await connection.execute(sa.insert(THINGS), ROWS)
        nobody = query.where(C.id == 99)
        one = query.where(C.id == 1)
        row = (await connection.execute(one)).one()
        errors = []
        for statement in (query, nobody):
            try:
                (await connection.execute(statement)).one()
            except exc.InvalidRequestError as error:
                errors.append(type(error))
        return [
            (row.id, row.called, row.at, row[0], len(row)),
            tuple((await connection.execute(one)).one_or_none()),
            (await connection.execute(nobody)).one_or_none(),
            (await connection.execute(nobody)).first(),
            tuple((await connection.execute(query)).first()),
            (await connection.execute(one)).scalar_one(),
            (await connection.execute(query)).scalar(),
            (await connection.execute(nobody)).scalar(),
            await connection.scalar(query),
            await connection.scalar(nobody),
            list(await connection.scalars(query)),
            (await connection.scalars(query)).all(),
            [dict(found) for found in (await connection.execute(query)).mappings()],
            dict((await connection.execute(query)).mappings().first()),
            [found.called for found in await connection.execute(query)],
            errors,
        ]

    async with plain.begin() as connection:
        expected = await read(connection)
    async with transaction(engine) as prepared:
        assert await read(prepared) == expected
    await plain.dispose()


@pytest.mark.parametrize(
    ("statement", "parameters"),
    [
        (sa.insert(THINGS), {"id": 1, "name": "again"}),
        (sa.insert(THINGS), [{"id": 20, "name": "a"}, {"id": 20, "name": "b"}]),
        (sa.insert(THINGS), [{"id": 20, "name": "a"}, {"id": 21}]),
        (sa.select(sa.text("nothing from nowhere")), None),
        (sa.select(THINGS).where(C.id == sa.bindparam("needed")), {}),
        (sa.insert(THINGS), {"id": "no number"}),
    ],
)
async def test_errors_are_those_of_the_plain_path_and_roll_back(
    engine: AsyncEngine, tmp_path: Path, statement: Any, parameters: Any
) -> None:
    plain = await made_at(tmp_path / "plain.sqlite3")
    kinds = []
    for opened in (plain.begin(), transaction(engine)):
        with pytest.raises(exc.SQLAlchemyError) as raised:
            async with opened as connection:
                await connection.execute(sa.insert(THINGS), {"id": 1, "name": "one"})
                await connection.execute(statement, parameters)
        kinds.append((type(raised.value), type(getattr(raised.value, "orig", None))))
    assert kinds[0] == kinds[1]
    async with transaction(engine, read_only=True) as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(THINGS)) == 0
    await plain.dispose()


async def test_one_that_only_reads_lets_others_write_and_sees_one_state(engine: AsyncEngine) -> None:
    count = sa.select(sa.func.count()).select_from(THINGS)
    async with transaction(engine, read_only=True) as reader:
        assert await reader.scalar(count) == 0
        async with transaction(engine) as writer:
            await writer.execute(sa.insert(THINGS), ROWS)
        assert await reader.scalar(count) == 0
    async with transaction(engine, read_only=True) as reader:
        assert await reader.scalar(count) == len(ROWS)


async def test_a_cancelled_transaction_is_rolled_back_and_gives_the_lock_back(engine: AsyncEngine) -> None:
    inside = asyncio.Event()

    async def write() -> None:
        async with transaction(engine) as connection:
            await connection.execute(sa.insert(THINGS), ROWS)
            inside.set()
            await asyncio.Event().wait()

    writing = asyncio.create_task(write())
    await inside.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    async with transaction(engine) as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(THINGS)) == 0
        await connection.execute(sa.insert(THINGS), ROWS)


async def test_a_lock_of_another_process_is_waited_for(engine: AsyncEngine, tmp_path: Path) -> None:
    holder = sqlite3.connect(tmp_path / "prepared.sqlite3", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    async def write() -> None:
        async with transaction(engine) as connection:
            await connection.execute(sa.insert(THINGS), ROWS[0])

    writing = asyncio.create_task(write())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not writing.done()
    holder.execute("ROLLBACK")
    await writing
    holder.close()


async def test_many_rows_are_written_whole(engine: AsyncEngine) -> None:
    rows = [{"id": n, "name": str(n)} for n in range(1, MANY_ROWS + 50)]
    async with transaction(engine) as connection:
        assert (await connection.execute(sa.insert(THINGS), rows)).rowcount == len(rows)
    async with transaction(engine, read_only=True) as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(THINGS)) == len(rows)


async def test_engines_of_others_and_heavy_statements_take_the_plain_path(engine: AsyncEngine) -> None:
    async with transaction(aside(engine), read_only=True) as connection:
        assert not isinstance(connection, sqlite_prepared.PreparedConnection)
        assert await connection.scalar(sa.select(sa.func.count()).select_from(THINGS)) == 0


async def test_statements_that_are_gone_leave_nothing_behind(engine: AsyncEngine) -> None:
    async with transaction(engine, read_only=True) as connection:
        gc.collect()
        before = len(sqlite_prepared._statements)
        for n in range(20):
            await connection.execute(sa.select(C.id).where(C.id == n))
        query = sa.select(C.id).where(C.id.in_(sa.bindparam("ids", expanding=True)))
        for n in range(2 * sqlite_prepared.FORMS):
            await connection.execute(query, {"ids": list(range(n))})
        gc.collect()
        assert len(sqlite_prepared._statements) == before + 1
        assert len(sqlite_prepared._statements[query].forms) <= sqlite_prepared.FORMS


async def test_a_default_made_in_python_is_refused_loudly(engine: AsyncEngine) -> None:
    table = sa.Table("made", sa.MetaData(), sa.Column("id", sa.Integer, default=lambda: 7))
    with pytest.raises(NotImplementedError, match="defaults made in Python"):
        async with transaction(engine) as connection:
            await connection.execute(sa.insert(table), {})


def test_the_lease_is_a_parameter_like_any_other() -> None:
    compiled = sa.select(lease()).compile(dialect=sqlite.dialect())
    assert set(compiled.params) == {"lease_ms"}


async def test_others_have_the_loop_between_the_transactions_of_a_burst(engine: AsyncEngine) -> None:
    async def read() -> None:
        async with transaction(engine, read_only=True) as connection:
            await connection.scalar(sa.select(sa.func.count()).select_from(THINGS))

    burst = [asyncio.create_task(read()) for _ in range(20)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in burst)
    await asyncio.gather(*burst)


async def test_a_relaxed_commit_is_brought_to_the_disk_soon_after_and_others_at_once(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, synced = asyncio.get_running_loop(), asyncio.Event()

    def to_disk(log: int) -> None:
        os.fsync(log)
        loop.call_soon_threadsafe(synced.set)

    monkeypatch.setattr("services.chassis.sqlite_log._to_disk", to_disk)
    levels = []
    for relaxed in (True, False):
        async with transaction(engine, relaxed=relaxed) as connection:
            levels.append(await connection.scalar(sa.text("PRAGMA synchronous").columns(sa.column("level"))))
            await connection.execute(sa.insert(THINGS), {"id": 100 + relaxed, "name": str(relaxed)})
        if relaxed:
            await asyncio.wait_for(synced.wait(), 10)
    assert levels == [1, 2]  # NORMAL and FULL
    async with transaction(engine, read_only=True) as connection:
        assert (await connection.scalars(sa.select(C.id).order_by(C.id))).all() == [100, 101]


async def test_a_commit_that_waits_for_the_disk_takes_the_relaxed_ones_before_it_along(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    monkeypatch.setattr("services.chassis.sqlite_log.LogSync._begin", begun.append)
    monkeypatch.setattr("services.chassis.sqlite_log.SOON", 0.001)
    async with transaction(engine, relaxed=True) as connection:
        await connection.execute(sa.insert(THINGS), {"id": 100, "name": "relaxed"})
    async with transaction(engine) as connection:
        await connection.execute(sa.insert(THINGS), {"id": 101, "name": "lasting"})
    await asyncio.sleep(0.01)
    assert begun == []


async def test_the_log_is_brought_into_the_file_beside_the_commits(
    engine: AsyncEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    bring = LogSync._bring_into_file

    def watched(log: LogSync) -> None:
        bring(log)
        loop.call_soon_threadsafe(done.set)

    monkeypatch.setattr(LogSync, "_bring_into_file", watched)
    for number in range(COMMITS_A_CHECKPOINT):
        async with transaction(engine, relaxed=number % 2 == 0) as connection:
            await connection.execute(sa.insert(THINGS), {"id": number, "name": str(number)})
    await asyncio.wait_for(done.wait(), 10)
    # The file without its log.
    alone = tmp_path / "alone.sqlite3"
    alone.write_bytes((tmp_path / "prepared.sqlite3").read_bytes())
    copy = sqlite3.connect(alone)
    (count,) = copy.execute("SELECT count(*) FROM things").fetchone()
    copy.close()
    assert count >= COMMITS_A_CHECKPOINT - 2
