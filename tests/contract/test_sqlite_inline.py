"""SQLite on the event loop does what the stock driver does, and blocks the loop for nothing that waits."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from services.chassis.database import open_engine, reading
from services.chassis.sqlite_inline import COMMITS_A_CHECKPOINT, COMMITS_ASIDE, MANY_ROWS, Disk

METADATA = sa.MetaData()
THINGS = sa.Table(
    "things",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, unique=True),
    sa.Column("content", sa.LargeBinary),
    sa.Column("facts", sa.JSON),
    sa.Column("at", sa.DateTime),
    sa.Column("flag", sa.Boolean),
)
ROWS = [
    {
        "name": f"thing {n} 世界",
        "content": bytes([n, 0, 255]),
        "facts": {"n": [n, None]},
        "at": None,
        "flag": n % 2 == 0,
    }
    for n in range(5)
]
CONDITION: sa.BindParameter[int] = sa.bindparam("least")
STATEMENTS: list[tuple[Any, Any]] = [
    (sa.insert(THINGS), ROWS),
    (sa.insert(THINGS).returning(THINGS), {"name": "six", "facts": [], "flag": True}),
    (sa.select(THINGS).where(THINGS.c.id >= CONDITION).order_by(THINGS.c.id), {"least": 2}),
    (sa.update(THINGS).where(THINGS.c.id.in_([1, 3])).values(name=THINGS.c.name + "!"), {}),
    (sa.update(THINGS).values(flag=None).returning(THINGS.c.id), {}),
    (sa.delete(THINGS).where(THINGS.c.name == "nobody"), {}),
    (sa.select(sa.func.count(), sa.func.max(THINGS.c.name)).select_from(THINGS), {}),
    (sa.select(THINGS.c.id).where(THINGS.c.name.regexp_match("^thing [12]")), {}),
]


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    made = open_engine(f"sqlite:///{tmp_path / 'inline.sqlite3'}")
    async with made.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    yield made
    await made.dispose()


def outcome(result: Any) -> Any:
    return [tuple(row) for row in result] if result.returns_rows else result.rowcount


@pytest.mark.parametrize("aside", [False, True])
async def test_every_statement_has_the_outcome_that_the_stock_driver_gives(
    engine: AsyncEngine, tmp_path: Path, *, aside: bool
) -> None:
    plain = sa.create_engine(f"sqlite:///{tmp_path / 'plain.sqlite3'}")
    METADATA.create_all(plain)
    with plain.begin() as connection:
        expected = [outcome(connection.execute(*statement)) for statement in STATEMENTS]
    async with engine.execution_options(aside=aside).begin() as other:
        assert [outcome(await other.execute(*statement)) for statement in STATEMENTS] == expected
    for path in ("plain", "inline"):
        with sqlite3.connect(tmp_path / f"{path}.sqlite3") as file:
            assert len(file.execute("select * from things").fetchall()) == len(ROWS) + 1
    with pytest.raises(IntegrityError):
        async with engine.begin() as other:
            await other.execute(sa.insert(THINGS), {"name": "six"})
    with pytest.raises(OperationalError, match="no such table"):
        async with engine.begin() as other:
            await other.exec_driver_sql("select * from nowhere")
    plain.dispose()


async def test_a_lock_of_another_process_is_waited_for_without_blocking_the_loop(
    engine: AsyncEngine, tmp_path: Path
) -> None:
    holder = sqlite3.connect(tmp_path / "inline.sqlite3", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    async def write() -> None:
        async with engine.begin() as connection:
            await connection.execute(sa.insert(THINGS), {"name": "late"})

    writing = asyncio.create_task(write())
    turns = 0
    while turns < 100:  # the loop goes round while the writer waits
        await asyncio.sleep(0)
        turns += 1
    assert not writing.done()
    holder.execute("ROLLBACK")
    await writing
    holder.close()
    async with reading(engine).connect() as connection:
        assert await connection.scalar(sa.select(THINGS.c.name)) == "late"


async def test_a_lock_that_nobody_gives_back_is_an_error_after_the_patience(tmp_path: Path) -> None:
    made = create_async_engine(f"sqlite+inline:///{tmp_path / 'held.sqlite3'}", connect_args={"timeout": 0.05})
    holder = sqlite3.connect(tmp_path / "held.sqlite3", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(OperationalError, match="locked"):
        async with made.connect() as connection:
            await connection.exec_driver_sql("BEGIN IMMEDIATE")
    holder.close()
    await made.dispose()


async def test_what_takes_long_is_done_in_a_thread(engine: AsyncEngine) -> None:
    seen: dict[str, str] = {}

    def note(where: str) -> str:
        seen[where] = threading.current_thread().name
        return where

    async def run(options: dict[str, Any], where: str, rows: int = 1) -> None:
        async with engine.execution_options(**options).begin() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None
            driver.create_function("note", 1, note)
            names = [{"name": f"{where} {n}", "where": where} for n in range(rows)]
            await connection.execute(sa.text("insert into things (name, facts) values (:name, note(:where))"), names)

    await run({}, "inline")
    await run({"aside": True}, "aside")
    await run({}, "many", MANY_ROWS + 1)
    loop = threading.current_thread().name
    assert seen["inline"] == loop
    assert seen["aside"].startswith("sqlite")
    assert seen["many"].startswith("sqlite")


async def test_a_statement_in_a_thread_ends_with_its_caller(engine: AsyncEngine) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def count_for_ever() -> None:
        async with engine.execution_options(aside=True, read_only=True).connect() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None
            driver.create_function("begun", 0, lambda: loop.call_soon_threadsafe(begun.set) is None)
            await connection.execute(
                sa.text("with recursive n(x) as (select begun() union all select x + 1 from n) select max(x) from n")
            )

    counting = asyncio.create_task(count_for_ever())
    await begun.wait()
    counting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await counting
    async with engine.begin() as connection:
        await connection.execute(sa.insert(THINGS), {"name": "after"})


def test_a_slow_disk_sends_commits_to_a_thread_and_is_tried_again() -> None:
    takes = [0.0005, 0.5, 0.0005, 0.01, 0.01]
    now = 0.0

    def clock() -> float:
        return now

    disk = Disk(clock)

    def commit() -> str:
        nonlocal now
        if disk.is_slow():
            return "aside"
        with disk.timed():
            now += takes.pop(0) if takes else 0.0005
        return "on the loop"

    # One slow commit is no slow disk; some in a row are.
    assert [commit() for _ in range(5)] == ["on the loop"] * 5
    assert [commit() for _ in range(COMMITS_ASIDE)] == ["aside"] * COMMITS_ASIDE
    assert commit() == "on the loop"


async def test_the_log_is_brought_into_the_file_beside_the_loop(engine: AsyncEngine, tmp_path: Path) -> None:
    path = tmp_path / "inline.sqlite3"
    for number in range(COMMITS_A_CHECKPOINT):
        async with engine.begin() as connection:
            await connection.execute(sa.insert(THINGS), {"name": str(number)})
    with sqlite3.connect(tmp_path / "copy.sqlite3") as copy:
        # The file without its log: what a checkpoint has brought there.
        (tmp_path / "bare.sqlite3").write_bytes(path.read_bytes())
        copy.execute("attach ? as bare", (str(tmp_path / "bare.sqlite3"),))
        (count,) = copy.execute("select count(*) from bare.things").fetchone()
    assert count >= COMMITS_A_CHECKPOINT - 2
