"""remember asks, recall answers from the user's own memories, and both go through the gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pytest

from services.chassis.identity import Principal
from services.orchestrator.domain.events import EvidenceAdded
from services.orchestrator.memory.memories import Memories
from services.orchestrator.memory.ports import Memory, MemoryFull, MemoryNotFound
from services.orchestrator.ports import RecordState
from services.orchestrator.tools.remember import RecallTool, RememberTool
from tests.support.clock import FakeClock
from tests.support.orchestrator_kit import ANN, START, bench, tool_call

BOB = Principal(tenant="t1", user="bob", scopes=frozenset({"*"}))


@dataclass
class MemoryInMemory:
    """The port MemoryStore in a list."""

    rows: list[Memory] = field(default_factory=list)

    async def add(self, memory: Memory, most: int) -> Memory:
        for row in self.rows:
            if row.memory_id == memory.memory_id:
                return row
        if len(self.rows) >= most:
            raise MemoryFull("erase some first")
        self.rows.append(memory)
        return memory

    async def list(
        self, tenant: str, user: str, *, limit: int, after: tuple[datetime, str] | None = None
    ) -> Sequence[Memory]:
        mine = [row for row in self.rows if (row.tenant, row.user) == (tenant, user)]
        return mine[::-1][:limit]

    async def remove(self, tenant: str, user: str, memory_id: str) -> bool:
        before = len(self.rows)
        self.rows = [row for row in self.rows if (row.tenant, row.user, row.memory_id) != (tenant, user, memory_id)]
        return len(self.rows) < before

    async def remove_all(self, tenant: str, user: str) -> int:
        mine = await self.list(tenant, user, limit=1000)
        self.rows = [row for row in self.rows if row not in mine]
        return len(mine)


@pytest.fixture
def store() -> MemoryInMemory:
    return MemoryInMemory()


@pytest.fixture
def memories(store: MemoryInMemory) -> Memories:
    return Memories(store, FakeClock(START))


async def recalled(memories: Memories, query: str = "") -> str:
    b = bench(RecallTool(memories))
    b.propose(tool_call("c1", "recall", query=query))
    await b.gate.work_off(b.leg)
    assert b.approvals.requests == []
    assert b.journal.of(EvidenceAdded) == []
    return b.results()["c1"]


@pytest.mark.parametrize(("state", "kept"), [(RecordState.APPROVED, 1), (RecordState.DENIED, 0)])
async def test_nothing_is_kept_before_the_user_agrees(
    memories: Memories, store: MemoryInMemory, state: RecordState, kept: int
) -> None:
    b = bench(RememberTool(memories))
    b.propose(tool_call("c1", "remember", text="Likes  tea."))
    await b.gate.work_off(b.leg)
    assert store.rows == []
    b.approvals.settle("c1", state)
    await b.gate.work_off(b.leg)
    assert [row.text for row in store.rows] == ["Likes tea."] * kept


async def test_a_repeat_after_a_crash_is_the_same_memory(memories: Memories, store: MemoryInMemory) -> None:
    first = await memories.remember(ANN, "Likes tea.", key="r1/1/c1")
    assert await memories.remember(ANN, "Likes tea.", key="r1/1/c1") == first
    assert (await memories.remember(BOB, "Likes tea.", key="r1/1/c1")).memory_id != first.memory_id
    assert len(store.rows) == 2


async def test_what_fits_comes_first_and_the_newest_fill_up(memories: Memories) -> None:
    for number, text in enumerate(("Works in Berlin.", "Prefers short answers.", "喜欢喝绿茶。", "Has a dog.")):
        await memories.remember(ANN, text, key=str(number))
    await memories.remember(BOB, "Prefers long answers.", key="b")
    lines = (await recalled(memories, "How should answers be?")).splitlines()
    assert lines[0].startswith("Kept about this user, as data")
    assert lines[1] == "- Prefers short answers. (kept 2026-01-05)"
    assert lines[2].startswith("- Has a dog.")
    assert len(lines) == 5
    assert (await recalled(memories, "他喜欢什么茶")).splitlines()[1].startswith("- 喜欢喝绿茶。")


async def test_an_empty_memory_is_told(memories: Memories) -> None:
    assert await recalled(memories) == "Nothing was kept about this user."


async def test_a_full_memory_is_told(memories: Memories, store: MemoryInMemory) -> None:
    for number in range(500):
        await memories.remember(ANN, f"Fact {number}", key=str(number))
    b = bench(RememberTool(memories))
    b.propose(tool_call("c1", "remember", text="One more."))
    await b.gate.work_off(b.leg)
    b.approvals.settle("c1", RecordState.APPROVED)
    await b.gate.work_off(b.leg)
    assert b.results() == {"c1": "erase some first"}
    assert b.statuses() == {"c1": "FAILED"}


async def test_a_memory_is_erased_by_its_owner_only(memories: Memories, store: MemoryInMemory) -> None:
    kept = await memories.remember(ANN, "Likes tea.", key="1")
    with pytest.raises(MemoryNotFound, match="list memories"):
        await memories.forget(BOB, kept.memory_id)
    await memories.forget(ANN, kept.memory_id)
    assert store.rows == []


async def test_who_is_no_user_has_no_memory(memories: Memories) -> None:
    service = Principal(tenant="", user="", scopes=frozenset())
    assert await RememberTool(memories).withheld(service)
    assert await RecallTool(memories).withheld(service)
    assert await RecallTool(memories).withheld(ANN) == ""
