"""Memories of users, on SQLite and PostgreSQL: kept once, listed, and erased for good."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.adapters.sql.memories import SqlMemories
from services.orchestrator.adapters.sql.memories import memories as table
from services.orchestrator.memory.ports import Memory, MemoryFull
from tests.support.clock import FakeClock

CLOCK = FakeClock()


@pytest.fixture
async def opened(database_url: str) -> AsyncIterator[Database]:
    database = await Database.open(database_url, CLOCK)
    yield database
    await database.close()


def memory(number: int, text: str = "", user: str = "ann", tenant: str = "acme") -> Memory:
    return Memory(
        memory_id=f"mem-{tenant}-{user}-{number}",
        tenant=tenant,
        user=user,
        text=text or f"Fact {number} \x00喜欢茶",
        created_at=CLOCK.now() + timedelta(seconds=number),
        run_id="r1",
        conversation_id="c1",
    )


async def test_memories_are_kept_once_listed_by_page_and_erased(opened: Database) -> None:
    store = SqlMemories(opened.engine)
    kept = [await store.add(memory(number), 10) for number in range(3)]
    assert await store.add(memory(0, "another text under a known id"), 10) == replace(kept[0], text="Fact 0 喜欢茶")
    assert (await store.add(memory(9, "Fact 1 喜欢茶"), 10)).memory_id == kept[1].memory_id

    page = await store.list("acme", "ann", limit=2)
    assert [one.text for one in page] == ["Fact 2 喜欢茶", "Fact 1 喜欢茶"]
    rest = await store.list("acme", "ann", limit=2, after=(page[-1].created_at, page[-1].memory_id))
    assert [one.memory_id for one in rest] == [kept[0].memory_id]
    assert rest[0].run_id == "r1"

    assert await store.remove("acme", "ann", kept[0].memory_id)
    assert not await store.remove("acme", "ann", kept[0].memory_id)
    assert await store.remove_all("acme", "ann") == 2
    async with opened.engine.connect() as connection:
        assert (await connection.execute(select(table))).all() == []


async def test_nobody_reaches_anothers_memories(opened: Database) -> None:
    store = SqlMemories(opened.engine)
    mine = await store.add(memory(1), 10)
    same_text = memory(1, user="bob")
    assert (await store.add(same_text, 10)).memory_id == same_text.memory_id
    for tenant, user in (("acme", "bob"), ("other", "ann")):
        assert mine.memory_id not in [one.memory_id for one in await store.list(tenant, user, limit=10)]
        assert not await store.remove(tenant, user, mine.memory_id)
        await store.remove_all(tenant, user)
    assert len(await store.list("acme", "ann", limit=10)) == 1


async def test_there_is_a_most(opened: Database) -> None:
    store = SqlMemories(opened.engine)
    await store.add(memory(1), 1)
    with pytest.raises(MemoryFull, match="erase some first"):
        await store.add(memory(2), 1)
    assert (await store.add(memory(1), 1)).memory_id == memory(1).memory_id
    await store.add(memory(2, user="bob"), 1)
