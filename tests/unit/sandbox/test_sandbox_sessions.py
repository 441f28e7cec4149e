"""The rules of sessions and the watching of executions, on a clock that the test owns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from services.sandbox.domain import Event, Finished, Isolation, Job, Limits, Output, Owner, Session, Status, Stream
from services.sandbox.errors import SandboxBusy, SandboxUnsafe, SessionNotFound
from services.sandbox.live import LiveExecution
from services.sandbox.sessions import SessionRules, Sessions
from tests.support.clock import FakeClock, SequentialIds

ANN, BOB = Owner(tenant="t", user="ann"), Owner(tenant="t", user="bob")
LIMITS = Limits(wall=30, cpu=20, memory_bytes=1 << 30, pids=64)
RULES = SessionRules(idle=timedelta(minutes=20), life=timedelta(hours=2), per_owner=2, total=3)


class FakeJail:
    """Remembers which sessions are open."""

    def __init__(self, *, safe: bool = True) -> None:
        self.open: list[str] = []
        self._safe = safe

    async def isolation(self) -> Isolation:
        return Isolation(safe=self._safe, backend="fake", cgroup="none", checks=())

    async def run(self, key: str, job: Job) -> AsyncIterator[Event]:
        yield Finished(status=Status.OK)

    async def cancel(self, key: str) -> None:
        return None

    async def open_session(self, session_id: str) -> None:
        self.open.append(session_id)

    async def close_session(self, session_id: str) -> None:
        self.open.remove(session_id)


class FakeStore:
    """Sessions in a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[str, Session] = {}

    async def add(self, session: Session) -> None:
        self.rows[session.session_id] = session

    async def find(self, session_id: str, owner: Owner) -> Session | None:
        found = self.rows.get(session_id)
        return found if found is not None and found.owner == owner else None

    async def touch(self, session_id: str, at: datetime) -> None:
        from dataclasses import replace

        if session_id in self.rows:
            self.rows[session_id] = replace(self.rows[session_id], used_at=at)

    async def remove(self, session_id: str) -> None:
        self.rows.pop(session_id, None)

    async def of_owner(self, owner: Owner, node: str) -> list[Session]:
        return sorted((s for s in self.rows.values() if s.owner == owner), key=lambda s: s.used_at)

    async def stale(self, node: str, *, used_before: datetime, created_before: datetime) -> list[Session]:
        return [s for s in self.rows.values() if s.used_at < used_before or s.created_at < created_before]

    async def count(self, node: str) -> int:
        return len(self.rows)

    async def clear(self, node: str) -> None:
        self.rows.clear()


class World:
    def __init__(self, *, safe: bool = True) -> None:
        self.clock = FakeClock()
        self.jail = FakeJail(safe=safe)
        self.sessions = Sessions(self.jail, FakeStore(), RULES, self.clock, SequentialIds(), "node")

    async def create(self, owner: Owner = ANN) -> str:
        self.clock.advance(1)
        return (await self.sessions.create(owner, LIMITS)).session_id


async def test_an_id_names_its_node() -> None:
    world = World()
    assert (await world.create()).startswith("node-")


async def test_the_least_recently_used_session_gives_way() -> None:
    world = World()
    first, second = await world.create(), await world.create()
    async with world.sessions.turn(first, ANN):
        world.clock.advance(1)
    third = await world.create()
    assert world.jail.open == [first, third]
    with pytest.raises(SessionNotFound):
        await world.sessions.find(second, ANN)


async def test_a_full_node_is_busy() -> None:
    world = World()
    for owner in (ANN, ANN, BOB):
        await world.create(owner)
    with pytest.raises(SandboxBusy):
        await world.create(BOB)


async def test_no_session_without_isolation() -> None:
    with pytest.raises(SandboxUnsafe):
        await World(safe=False).create()


async def test_idle_and_old_sessions_are_over_before_they_are_swept() -> None:
    world = World()
    session = await world.create()
    world.clock.advance(20 * 60 + 1)
    with pytest.raises(SessionNotFound):
        await world.sessions.find(session, ANN)
    await world.sessions.sweep()
    assert world.jail.open == []


async def test_a_session_in_use_is_not_swept() -> None:
    world = World()
    session = await world.create()
    async with world.sessions.turn(session, ANN):
        world.clock.advance(3 * 3600)
        await world.sessions.sweep()
        assert world.jail.open == [session]


async def test_calls_of_a_session_take_turns() -> None:
    world = World()
    session = await world.create()
    order: list[str] = []

    async def call(name: str) -> None:
        async with world.sessions.turn(session, ANN):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")

    await asyncio.gather(call("a"), call("b"))
    assert order == ["a in", "a out", "b in", "b out"]


async def test_a_stranger_can_neither_find_nor_close() -> None:
    world = World()
    session = await world.create()
    with pytest.raises(SessionNotFound):
        await world.sessions.find(session, BOB)
    await world.sessions.close(session, BOB)
    assert world.jail.open == [session]
    await world.sessions.close(session, ANN)
    await world.sessions.close(session, ANN)
    assert world.jail.open == []


def output(number: int) -> Output:
    return Output(stream=Stream.STDOUT, sequence=number, data=b"x")


async def test_a_late_watcher_sees_everything_from_the_first_event() -> None:
    live = LiveExecution()
    live.publish(output(1))
    seen: list[Event] = []

    async def watch() -> None:
        seen.extend([event async for event in live.watch()])

    task = asyncio.create_task(watch())
    await asyncio.sleep(0)
    live.publish(output(2))
    live.publish(Finished(status=Status.OK))
    await task
    assert seen == [output(1), output(2), Finished(status=Status.OK)]


async def test_only_the_last_watcher_leaving_abandons_the_execution() -> None:
    live = LiveExecution()
    live.publish(output(1))
    first, second = live.watch(), live.watch()
    await anext(first)
    await anext(second)
    await first.aclose()
    assert not live.abandoned.is_set()
    await second.aclose()
    assert live.abandoned.is_set()


async def test_a_failure_reaches_every_watcher() -> None:
    live = LiveExecution()
    live.close(RuntimeError("disk full"))
    with pytest.raises(RuntimeError, match="disk full"):
        await anext(live.watch())
