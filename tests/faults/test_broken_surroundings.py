"""What surrounds the suite breaks: wires are cut or go silent, clocks jump, disks fill, model servers misbehave."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Connection, Engine, event

from services.chassis.clock import SystemClock
from services.chassis.sqlite_prepared import Connections, PreparedConnection
from tests.support.platform import test_platform
from tests.support.suite import Suite, short_folder, suite
from tests.support.suite_steps import TERMINAL, answer_text, ask, ask_until, follow, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import Cut, Raw, Reach, Request, Say, Turn, Wait, call, fail, say
from tests.support.wire_cutter import WireCutter

pytestmark = pytest.mark.asyncio(loop_scope="module")
ASKING = {"name": "asking", "tools": [{"tool": "current_time", "policy": "TOOL_POLICY_ASK"}]}


class JumpingClock(SystemClock):
    """The machine's clock, whose wall time a test may correct."""

    def __init__(self) -> None:
        self.off = timedelta()

    def now(self) -> datetime:
        return super().now() + self.off


@dataclass
class Broken:
    """The suite and what a test may break: its wires by who is at their ends, its clock."""

    suite: Suite
    wires: dict[str, WireCutter]
    clock: JumpingClock

    @property
    def http(self) -> Any:
        return self.suite.http


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream) -> AsyncIterator[Broken]:
    clock = JumpingClock()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(short_folder())
        wires, addresses = {}, {}
        for client, service in (
            ("gateway", "orchestrator"),
            ("orchestrator", "approval"),
            ("orchestrator", "retrieval"),
        ):
            wire = WireCutter(str(folder / f"{client[0]}-{service}.sock"), str(folder / f"{service}.sock"))
            wires[f"{client}-{service}"] = await stack.enter_async_context(wire)
            addresses[f"PROCTOR_{client.upper()}_{service.upper()}_TARGET"] = wire.address
        started = await stack.enter_async_context(
            suite(
                model=upstream.base_url,
                folder=folder,
                platform=test_platform(clock=clock),
                services=("approval", "retrieval", "orchestrator"),
                PROCTOR_ORCHESTRATOR_PARKED_EVERY="0.2",
                PROCTOR_ORCHESTRATOR_RETRIEVAL_TIMEOUT="1",
                **addresses,
            )
        )
        yield Broken(started, wires, clock)


@pytest.fixture(autouse=True)
def _whole_again(upstream: Upstream, running: Broken) -> Iterator[None]:
    upstream.reset()
    yield
    running.clock.off = timedelta()
    upstream.default = None
    for wire in running.wires.values():
        wire.mend()


def whole(events: list[dict[str, Any]]) -> None:
    """Check that numbers only grow and that the run has ended once, at the end."""
    sequences = [event["sequence"] for event in events]
    assert sequences == sorted(set(sequences))
    assert [event["kind"] in TERMINAL for event in events] == [False] * (len(events) - 1) + [True]


async def test_a_cut_between_gateway_and_orchestrator_is_not_seen_by_the_client(
    running: Broken, upstream: Upstream
) -> None:
    first, rest = asyncio.Event(), Wait()
    upstream.script(Turn(steps=(Say(pieces=("one ",)), Reach(event=first), rest, Say(pieces=("two ", "three")))))
    seen: list[dict[str, Any]] = []
    async with aclosing(follow(running, "POST", "/v1/runs", body={"input": "Count."})) as stream:
        async for event in stream:
            seen.append(event)
            if event["kind"] == "answer_delta" and not rest.event.is_set():
                running.wires["gateway-orchestrator"].cut()
                rest.event.set()
                running.wires["gateway-orchestrator"].mend()
    whole(seen)
    assert answer_text(seen) == of(seen, "run_completed")[0]["text"] == "one two three"
    assert running.wires["gateway-orchestrator"].connections > 1


async def test_a_cut_to_retrieval_costs_the_search_and_not_the_answer(running: Broken, upstream: Upstream) -> None:
    running.wires["orchestrator-retrieval"].cut()
    upstream.script(call("search", json.dumps({"query": "mileage", "reason": "r"})), say("I could not look it up."))
    events = await ask(running, "What is the mileage rate?")
    whole(events)
    assert "source_failed" in [notice["code"] for notice in of(events, "notice")]
    # The model must not take silence for an answer of the documents.
    assert "could not be searched" in upstream.requests[-1].last_text
    assert of(events, "tool_call_finished")[0]["status"] == "TOOL_STATUS_FAILED"
    assert of(events, "run_completed")[0]["text"] == "I could not look it up."


async def test_a_silent_wire_to_retrieval_costs_no_more_than_its_deadline(running: Broken, upstream: Upstream) -> None:
    running.wires["orchestrator-retrieval"].hush()
    upstream.script(say("Without documents."))
    async with asyncio.timeout(10):
        events = await ask(running, "What is the mileage rate?", agent_id="classic")
    whole(events)
    assert of(events, "run_completed")[0]["text"] == "Without documents."


async def test_a_decision_made_while_the_wire_to_approval_is_cut_arrives_when_it_is_mended(
    running: Broken, upstream: Upstream
) -> None:
    upstream.script(call("current_time", json.dumps({"reason": "r"})), say("It is late."))
    events = await ask(running, "What time is it?", inline_agent=ASKING, hold=0)
    running.wires["orchestrator-approval"].cut()
    approval_id = of(events, "approval_requested")[0]["approval_id"]
    reply = await running.http.post(f"/v1/approvals/{approval_id}/decision", json={"decision": "approve"})
    assert reply.status_code == 200, reply.text
    assert (await running.http.get(f"/v1/runs/{events[0]['run_id']}")).json()["state"] == "RUN_STATE_PAUSED"
    running.wires["orchestrator-approval"].mend()
    rest = await watch(running, events[0]["run_id"], events[-1]["sequence"])
    whole([*events, *rest])
    assert of(rest, "run_completed")[0]["text"] == "It is late."


@pytest.mark.parametrize("hours", [-26, 26])
async def test_a_clock_that_jumps_in_the_middle_of_a_run_changes_nothing_of_it(
    running: Broken, upstream: Upstream, hours: int
) -> None:
    first, rest = asyncio.Event(), Wait()
    upstream.script(Turn(steps=(Say(pieces=("one ",)), Reach(event=first), rest, Say(pieces=("two",)))))
    seen = await ask_until(running, "answer_delta", "Count.")
    await first.wait()
    running.clock.off = timedelta(hours=hours)
    rest.event.set()
    events = [*seen, *await watch(running, seen[0]["run_id"], seen[-1]["sequence"])]
    whole(events)
    assert of(events, "run_completed")[0]["text"] == "one two"
    (call_finished,) = [each for each in of(events, "model_call_finished") if each["purpose"] == "answer"]
    assert 0 <= float(call_finished["total"].rstrip("s")) < 60


async def test_what_expired_when_the_clock_jumped_ahead_stays_expired_when_it_jumps_back(
    running: Broken, upstream: Upstream
) -> None:
    upstream.script(call("current_time", json.dumps({"reason": "r"})), say("Nobody told me."))
    events = await ask(running, "What time is it?", inline_agent=ASKING, hold=0)
    approval_id = of(events, "approval_requested")[0]["approval_id"]
    running.clock.off = timedelta(hours=1)
    rest = await watch(running, events[0]["run_id"], events[-1]["sequence"])
    running.clock.off = timedelta(hours=-1)
    assert [f["status"] for f in of(rest, "tool_call_finished")] == ["TOOL_STATUS_EXPIRED"]
    late = await running.http.post(f"/v1/approvals/{approval_id}/decision", json={"decision": "approve"})
    assert (late.status_code, late.json()["reason"]) == (409, "APPROVAL_EXPIRED")
    whole([*events, *rest])


async def test_models_that_misbehave_at_random_end_each_run_once(running: Broken, upstream: Upstream) -> None:
    chance = random.Random(20301130)
    faults: list[Turn] = [
        fail(500),
        fail(429, retry_after="0"),
        Turn(steps=(Cut(),)),
        Turn(steps=(Say(pieces=("half of ", "it ")), Cut())),
        Turn(steps=(Say(pieces=("half ",)), Raw(content=b"data: {garbage\n\n"))),
        Turn(steps=()),
        call("no_such_tool", "{}"),
        call("current_time", "{not json"),
    ]

    def turn(request: Request) -> Turn:
        question = next(m["content"] for m in reversed(request.messages) if m["role"] == "user" and "Number" in str(m))
        return chance.choice(faults) if chance.random() < 0.5 else say(f"Answer to {question}")

    upstream.default = turn
    runs = await asyncio.gather(*(ask(running, f"Number {number}?") for number in range(24)))
    ends: Counter[str] = Counter()
    for number, events in enumerate(runs):
        whole(events)
        end = events[-1]
        ends[end["kind"]] += 1
        if end["kind"] == "run_completed":
            assert end["run_completed"]["text"].endswith(f"Answer to Number {number}?")
        else:
            assert end["run_failed"]["reason"].startswith("MODEL_"), end
    assert ends["run_completed"] > 12


@dataclass
class Disk:
    """Lets no database of a file name grow while `full`: SQLite then fails as on a full disk, with SQLITE_FULL."""

    name: str
    full: bool = True
    bounded: set[sqlite3.Connection] = field(default_factory=set)

    def bound(self, database: str, connection: sqlite3.Connection) -> None:
        """Bound a transaction that begins."""
        if database.endswith(self.name):
            self.bounded.add(connection)
            # A bound below the size of the file is its size.
            connection.execute(f"PRAGMA max_page_count = {1 if self.full else 2**30}").close()

    def release(self) -> None:
        """Take every bound back: connections outlive the disk."""
        for connection in self.bounded:
            with suppress(sqlite3.ProgrammingError):  # closed meanwhile
                connection.execute(f"PRAGMA max_page_count = {2**30}").close()


@contextmanager
def full_disk(name: str) -> Iterator[Disk]:
    """Fill the disk for the length of the block, or until its `full` is taken back."""
    disk = Disk(name)
    unbound = Connections.transaction

    def begun(connection: Connection) -> None:
        driver: Any = connection.connection.dbapi_connection
        disk.bound(connection.engine.url.database or "", driver.driver_connection)

    @asynccontextmanager
    async def bound(self: Connections, **how: bool) -> AsyncIterator[PreparedConnection]:
        async with unbound(self, **how) as connection:
            disk.bound(self._log._database, connection._connection.driver_connection)
            yield connection

    # Statements of services take one of two ways to SQLite.
    event.listen(Engine, "begin", begun)
    Connections.transaction = bound  # type: ignore[method-assign]
    try:
        yield disk
    finally:
        Connections.transaction = unbound  # type: ignore[method-assign]
        event.remove(Engine, "begin", begun)
        disk.release()


def noise(length: int) -> str:
    """Return text that no compression makes small."""
    return random.Random(7).randbytes(length // 2).hex()


async def test_a_full_disk_stops_writing_and_loses_nothing(running: Broken, upstream: Upstream) -> None:
    first, rest = asyncio.Event(), Wait()
    long = noise(300_000)
    upstream.script(Turn(steps=(Say(pieces=("one ",)), Reach(event=first), rest, Say(pieces=(long,)))))
    seen = await ask_until(running, "answer_delta", "Tell me a lot.")
    await first.wait()
    with full_disk("orchestrator.sqlite3") as disk:
        rest.event.set()
        begun = asyncio.create_task(ask(running, noise(100_000)))
        # What needs no space works on.
        state = (await running.http.get(f"/v1/runs/{seen[0]['run_id']}")).json()["state"]
        assert state == "RUN_STATE_RUNNING"
        disk.full = False
        other = await begun
        rest_of_it = await watch(running, seen[0]["run_id"], seen[-1]["sequence"])
    whole(other)
    whole([*seen, *rest_of_it])
    assert of(rest_of_it, "run_completed")[0]["text"] == "one " + long
