"""The use case Execute with a jail that fails in chosen ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

import pytest

from services.chassis.errors import Unavailable
from services.chassis.telemetry import no_telemetry
from services.sandbox.domain import Event, Finished, Isolation, Job, Limits, Owner, Started, Status
from services.sandbox.errors import SandboxUnsafe
from services.sandbox.executions import Capacity, Executions
from services.sandbox.ports import Record, State
from services.sandbox.sessions import SessionRules, Sessions
from services.sandbox.watch import Observer
from tests.support.clock import FakeClock, SequentialIds

ANN = Owner(tenant="t", user="ann")
LIMITS = Limits(wall=30, cpu=20, memory_bytes=1 << 30, pids=64)
JOB = Job(execution_id="e", owner=ANN, code="1", files=(), limits=LIMITS)


class FakeJail:
    """Emits what it is told; an exception in the list is raised; None waits until the job is cancelled."""

    def __init__(self, *script: Event | Exception | None, safe: bool = True) -> None:
        self.script: Sequence[Event | Exception | None] = script
        self.runs = 0
        self.cancelled = asyncio.Event()
        self._safe = safe

    async def isolation(self) -> Isolation:
        return Isolation(safe=self._safe, backend="fake", cgroup="none", checks=())

    async def run(self, key: str, job: Job) -> AsyncIterator[Event]:
        self.runs += 1
        for step in self.script:
            if isinstance(step, Exception):
                raise step
            if step is None:
                await self.cancelled.wait()
            else:
                yield step

    async def cancel(self, key: str) -> None:
        self.cancelled.set()

    async def open_session(self, session_id: str) -> None:
        raise NotImplementedError

    async def close_session(self, session_id: str) -> None:
        raise NotImplementedError


class FakeStore:
    """Executions in a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[str, Record] = {}
        self.events: dict[str, list[Event]] = {}

    async def claim(self, record: Record) -> Record | None:
        if record.execution_id in self.rows:
            return self.rows[record.execution_id]
        self.rows[record.execution_id] = record
        return None

    async def release(self, record: Record) -> None:
        del self.rows[record.execution_id]

    async def finish(self, record: Record, events: Sequence[Event], at: datetime) -> None:
        from dataclasses import replace

        self.rows[record.execution_id] = replace(record, state=State.FINISHED)
        self.events[record.execution_id] = list(events)

    async def replay(self, owner: Owner, execution_id: str) -> AsyncIterator[Event]:
        for event in self.events[execution_id]:
            yield event

    async def abandon(self, node: str, boot: str, finished: Finished, at: datetime) -> int:
        return 0

    async def prune(self, before: datetime) -> int:
        return 0


def executions(jail: FakeJail, store: FakeStore, *, slots: int = 1) -> Executions:
    clock, ids = FakeClock(), SequentialIds()
    rules = SessionRules(idle=timedelta(1), life=timedelta(1), per_owner=1, total=1)
    sessions = Sessions(jail, None, rules, clock, ids, "n")  # type: ignore[arg-type]  # no test here has a session
    capacity = Capacity(slots=slots, max_waiting=10, retention=timedelta(hours=1))
    return Executions(jail, store, sessions, capacity, Observer(no_telemetry()), clock, ids, "n")


async def collected(service: Executions, job: Job = JOB) -> list[Event]:
    return [event async for event in service.execute(job)]


STARTED, OK = Started(warm=True, queued=0.0), Finished(status=Status.OK)


async def test_the_end_is_stored_before_it_is_told() -> None:
    store = FakeStore()
    service = executions(FakeJail(STARTED, OK), store)
    async for event in service.execute(JOB):
        if event == OK:
            assert store.rows["e"].state is State.FINISHED
    assert store.events["e"] == [STARTED, OK]


async def test_asking_twice_at_once_runs_once() -> None:
    jail = FakeJail(STARTED, OK)
    service = executions(jail, FakeStore())
    first, second = await asyncio.gather(collected(service), collected(service))
    assert first == second == [STARTED, OK]
    assert jail.runs == 1


async def test_an_id_whose_code_never_ran_is_free_again() -> None:
    jail, store = FakeJail(Unavailable("no supervisor")), FakeStore()
    service = executions(jail, store)
    with pytest.raises(Unavailable):
        await collected(service)
    jail.script = (STARTED, OK)
    assert await collected(service) == [STARTED, OK]


async def test_a_jail_that_falls_silent_is_an_error_of_the_sandbox() -> None:
    events = await collected(executions(FakeJail(STARTED), FakeStore()))
    assert isinstance(events[-1], Finished)
    assert events[-1].status is Status.SANDBOX_ERROR


async def test_leaving_cancels_and_the_slot_is_free_again() -> None:
    cancelled = Finished(status=Status.CANCELLED)
    jail, store = FakeJail(STARTED, None, cancelled), FakeStore()
    service = executions(jail, store)
    stream = service.execute(JOB)
    assert await anext(stream) == STARTED
    await stream.aclose()
    await service.drain()
    assert store.events["e"] == [STARTED, cancelled]


async def test_leaving_the_queue_ends_without_a_run() -> None:
    jail, store = FakeJail(STARTED, None, OK), FakeStore()
    service = executions(jail, store)
    running = service.execute(JOB)
    await anext(running)
    other = Job(execution_id="waiting", owner=ANN, code="1", files=(), limits=LIMITS)
    waiting = asyncio.create_task(collected(service, other))
    while "waiting" not in store.rows:
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await running.aclose()
    await service.drain()
    assert store.events["waiting"] == [Finished(status=Status.CANCELLED)]
    assert jail.runs == 1


async def test_nothing_is_claimed_where_it_is_not_safe() -> None:
    store = FakeStore()
    with pytest.raises(SandboxUnsafe):
        await collected(executions(FakeJail(safe=False), store))
    assert store.rows == {}


async def test_a_draining_service_admits_nothing() -> None:
    service = executions(FakeJail(STARTED, OK), FakeStore())
    await service.drain()
    with pytest.raises(Unavailable):
        await collected(service)
