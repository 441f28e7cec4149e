"""Every schema that was ever released becomes today's, with what is in it; today's is what the code reads."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.database import current_revision, migrate, newest_revision, open_engine, revisions_of
from services.chassis.migrations import upgrade

SERVICES = ("approval", "gateway", "orchestrator", "retrieval", "sandbox")
DESCRIBES_A_TABLE = re.compile(r"= (?:sa\.)?Table\(\n")


def folder_of(service: str) -> Path:
    return Path(str(files(f"services.{service}") / "migrations"))


RELEASED = [(service, revision) for service in SERVICES for revision in sorted(revisions_of(folder_of(service)))]


@asynccontextmanager
async def engine_for(url: str) -> AsyncIterator[AsyncEngine]:
    engine = open_engine(url)
    try:
        yield engine
    finally:
        await engine.dispose()


def filler(column: sa.Column[Any]) -> Any:
    """Return a value that the column takes and that a migration could not have made up."""
    match column.type:
        case sa.Boolean():
            return True
        case sa.DateTime():
            return datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
        case sa.Integer():
            return 7
        case sa.Float():
            return 0.5
        case sa.LargeBinary():
            return b"kept bytes"
        case sa.JSON():
            return {"kept": ["json"]}
        case sa.String(length=length):
            return "kept text"[:length]
        case other:
            raise AssertionError(f"{column}: no value for {other!r}")


def fill(connection: sa.Connection) -> dict[str, dict[str, Any]]:
    """Put one row into every table as it is now and return them."""
    metadata = sa.MetaData()
    metadata.reflect(connection)
    rows: dict[str, dict[str, Any]] = {}
    for table in metadata.sorted_tables:
        if table.name == "alembic_version":
            continue
        row = {}
        for column in table.columns:
            (key,) = column.foreign_keys or (None,)
            row[column.name] = rows[key.column.table.name][key.column.name] if key is not None else filler(column)
        connection.execute(sa.insert(table).values(**row))
        rows[table.name] = read(connection, table.name)
    return rows


def read(connection: sa.Connection, name: str) -> dict[str, Any]:
    table = sa.Table(name, sa.MetaData(), autoload_with=connection)
    return dict(connection.execute(sa.select(table)).mappings().one())


@pytest.mark.parametrize(("service", "revision"), RELEASED, ids=lambda value: value)
async def test_a_released_schema_becomes_todays_and_keeps_what_is_in_it(
    database_url: str, service: str, revision: str
) -> None:
    async with engine_for(database_url) as engine:
        async with engine.begin() as connection:
            await connection.run_sync(upgrade, folder_of(service), revision)
            assert await connection.run_sync(current_revision) == revision
            before = await connection.run_sync(fill)
        await migrate(engine, f"services.{service}:migrations")
        async with engine.begin() as connection:
            assert await connection.run_sync(current_revision) == newest_revision(folder_of(service))
            for table, row in before.items():
                after = await connection.run_sync(read, table)
                assert {name: after[name] for name in row} == row, table


def describing(service: str) -> list[str]:
    """Return the modules of a service that describe tables. Indexes stand in the migrations alone."""
    adapters = folder_of(service).parent / "adapters"
    found = [path for path in adapters.rglob("*.py") if DESCRIBES_A_TABLE.search(path.read_text(encoding="utf-8"))]
    assert found
    return [".".join(("services", service, *path.relative_to(adapters.parent).with_suffix("").parts)) for path in found]


@pytest.mark.parametrize("service", SERVICES)
async def test_the_migrated_schema_is_the_one_the_code_reads(database_url: str, service: str) -> None:
    described = sa.MetaData()
    for module in describing(service):
        for table in vars(import_module(module)).values():
            if isinstance(table, sa.Table) and table.name not in described.tables:
                table.to_metadata(described)

    def differences(connection: sa.Connection) -> list[Any]:
        found: list[Any] = compare_metadata(MigrationContext.configure(connection), described)
        return [each for each in found if "index" not in each[0] and "constraint" not in each[0]]

    async with engine_for(database_url) as engine:
        await migrate(engine, f"services.{service}:migrations")
        async with engine.connect() as connection:
            assert await connection.run_sync(differences) == []


async def test_an_older_version_leaves_the_schema_of_a_later_one_alone(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Path(__file__).parents[1] / "support" / "migrated" / "migrations"
    (tmp_path / "older_version").mkdir()
    (tmp_path / "older_version" / "__init__.py").touch()
    copytree(later, tmp_path / "older_version" / "migrations")
    (tmp_path / "older_version" / "migrations" / "versions" / "0002_more.py").unlink()
    monkeypatch.syspath_prepend(tmp_path)
    async with engine_for(database_url) as engine:
        await migrate(engine, "tests.support.migrated:migrations")
        await migrate(engine, "older_version:migrations")
        async with engine.connect() as connection:
            assert await connection.run_sync(current_revision) == "0002"
