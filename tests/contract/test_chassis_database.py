"""The same promises on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from services.chassis.database import current_revision, migrate, newest_revision, open_engine, reading
from services.chassis.database import database_url as url_for

MIGRATIONS = "tests.support.migrated:migrations"
THINGS = sa.table("things", sa.column("id", sa.Integer), sa.column("name", sa.Text))
PARTS = sa.table("parts", sa.column("id", sa.Integer), sa.column("thing", sa.Integer))


async def test_migrating_brings_an_empty_database_to_the_newest_schema_and_is_repeatable(database_url: str) -> None:
    engine = open_engine(database_url)
    await migrate(engine, MIGRATIONS)
    await migrate(engine, MIGRATIONS)
    async with engine.connect() as connection:
        assert await connection.run_sync(current_revision) == "0002"
    await engine.dispose()


async def test_replicas_that_start_together_migrate_once(database_url: str) -> None:
    engines = [open_engine(database_url) for _ in range(3)]
    await asyncio.gather(*(migrate(engine, MIGRATIONS) for engine in engines))
    async with engines[0].connect() as connection:
        assert await connection.run_sync(current_revision) == "0002"
    for engine in engines:
        await engine.dispose()


async def test_foreign_keys_hold(database_url: str) -> None:
    engine = open_engine(database_url)
    await migrate(engine, MIGRATIONS)
    with pytest.raises(IntegrityError):
        async with engine.begin() as connection:
            await connection.execute(sa.insert(PARTS).values(id=1, thing=404))
    await engine.dispose()


async def test_a_failed_transaction_leaves_nothing(database_url: str) -> None:
    engine = open_engine(database_url)
    await migrate(engine, MIGRATIONS)
    with pytest.raises(RuntimeError, match="half-way"):
        async with engine.begin() as connection:
            await connection.execute(sa.insert(THINGS).values(id=1, name="a"))
            raise RuntimeError("half-way")
    async with reading(engine).connect() as connection:
        assert (await connection.execute(sa.select(THINGS))).all() == []
    await engine.dispose()


async def test_writers_that_read_first_do_not_lose_each_others_change(sqlite_url: str) -> None:
    engine = open_engine(sqlite_url)
    await migrate(engine, MIGRATIONS)
    async with engine.begin() as connection:
        await connection.execute(sa.insert(THINGS).values(id=1, name="0"))

    async def increment() -> None:
        async with engine.begin() as connection:
            name = (await connection.execute(sa.select(THINGS.c.name))).scalar_one()
            await connection.execute(sa.update(THINGS).values(name=str(int(name) + 1)))

    await asyncio.gather(*(increment() for _ in range(20)))
    async with reading(engine).connect() as connection:
        assert (await connection.execute(sa.select(THINGS.c.name))).scalar_one() == "20"
    await engine.dispose()


async def test_sqlite_is_durable_and_readers_do_not_wait_for_a_writer(sqlite_url: str) -> None:
    engine = open_engine(sqlite_url)
    await migrate(engine, MIGRATIONS)
    async with engine.begin() as writer:
        await writer.execute(sa.insert(THINGS).values(id=1, name="uncommitted"))
        async with asyncio.timeout(1), reading(engine).connect() as reader:
            assert (await reader.execute(sa.select(THINGS))).all() == []
            pragmas = [
                (await reader.exec_driver_sql(f"PRAGMA {name}")).scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys")
            ]
    assert pragmas == ["wal", 2, 1]
    await engine.dispose()


def test_without_a_url_the_service_has_a_file_of_its_own(tmp_path: Path) -> None:
    assert url_for("", tmp_path / "new", "approval").endswith("/new/approval.sqlite3")
    assert (tmp_path / "new").is_dir()
    assert url_for("postgresql+asyncpg://h/d", tmp_path, "approval") == "postgresql+asyncpg://h/d"


def test_two_newest_revisions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "versions").mkdir()
    for name in ("a", "b"):
        (tmp_path / "versions" / f"{name}.py").write_text(f'revision: str = "{name}"\ndown_revision = None\n')
    with pytest.raises(ValueError, match="'a', 'b'"):
        newest_revision(tmp_path)
