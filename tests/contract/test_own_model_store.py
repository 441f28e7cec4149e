"""The store of users' models, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.adapters.sql.own_models import SqlOwnModels
from services.orchestrator.models.model_settings import Api
from services.orchestrator.models.own.ports import Definition, NameTaken, StoredModel
from tests.support.clock import FakeClock


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[SqlOwnModels]:
    opened = await Database.open(database_url, FakeClock())
    yield SqlOwnModels(opened.engine)
    await opened.close()


def row(model_id: str, user: str = "ann", name: str = "mine") -> StoredModel:
    return StoredModel(
        model_id=model_id,
        tenant="acme",
        user=user,
        definition=Definition(
            name=name,
            base_url="https://models.example.org/v1",
            upstream_name="big-2",
            api=Api.RESPONSES,
            window=200_000,
            output_limit=8192,
            capabilities=frozenset({"tools", "vision"}),
            description="模型",
        ),
        sealed_key=b"\x01\x00\xff",
        created_at=FakeClock().now(),
        updated_at=FakeClock().now(),
    )


async def test_a_row_comes_back_as_it_was(store: SqlOwnModels) -> None:
    await store.add(row("own-1"))
    assert list(await store.all()) == [row("own-1")]


async def test_a_name_is_unique_per_user(store: SqlOwnModels) -> None:
    await store.add(row("own-1"))
    await store.add(row("own-2", user="bob"))
    with pytest.raises(NameTaken):
        await store.add(row("own-3"))
    await store.add(row("own-4", name="other"))
    with pytest.raises(NameTaken):
        await store.replace(row("own-4", name="mine"))


async def test_a_row_is_replaced_and_removed_by_its_owner_only(store: SqlOwnModels) -> None:
    await store.add(row("own-1"))
    changed = replace(row("own-1"), sealed_key=b"new")
    await store.replace(changed)
    assert list(await store.all()) == [changed]
    assert not await store.remove("acme", "bob", "own-1")
    assert not await store.remove("rival", "ann", "own-1")
    assert await store.remove("acme", "ann", "own-1")
    assert not await store.remove("acme", "ann", "own-1")
