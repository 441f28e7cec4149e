"""A crash at any moment loses nothing and does nothing twice: real processes, killed or stopped at each point."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from tests.support.processes import Processes, processes
from tests.support.suite_steps import TERMINAL, answer_text, follow, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import Reach, Say, Turn, Wait, call, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
# Says that it began, takes a moment so that a crash can hit it, and says that it is done.
CODE = "import time\nprint('begun', flush=True)\ntime.sleep(0.5)\nprint('effect', flush=True)\ntime.sleep(0.3)"
SIGNALS = [signal.SIGKILL, signal.SIGTERM]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream) -> AsyncIterator[Processes]:
    async with processes(model=upstream.base_url) as started:
        yield started


@dataclass
class Client:
    """One client that follows one run over one connection, whatever happens behind the gateway."""

    suite: Processes
    seen: list[dict[str, Any]] = field(default_factory=list)

    async def ask(self, until: str) -> dict[str, Any]:
        """Start a run and read until an event of a kind; the stream stays open in `rest`."""
        self._stream = follow(self.suite, "POST", "/v1/runs", body={"input": "Compute it.", "hold": 120})
        return await self.read(until)

    async def read(self, until: str) -> dict[str, Any]:
        async for event in self._stream:
            self.seen.append(event)
            if event["kind"] == until:
                return event
        raise AssertionError(f"the stream ended without {until}: {[e['kind'] for e in self.seen]}")

    async def rest(self) -> None:
        async with aclosing(self._stream) as stream:
            async for event in stream:
                self.seen.append(event)

    @property
    def run_id(self) -> str:
        return str(self.seen[0]["run_id"])


async def restart(running: Processes, number: signal.Signals) -> None:
    await running.kill("orchestrator", number)
    await running.start("orchestrator")


async def allow(running: Processes, event: dict[str, Any]) -> None:
    approval_id = event["approval_requested"]["approval_id"]
    reply = await running.http.post(f"/v1/approvals/{approval_id}/decision", json={"decision": "approve"})
    reply.raise_for_status()


def executions(running: Processes, run_id: str) -> int:
    """Return how often the sandbox ran code for a run."""
    with sqlite3.connect(running.folder / "sandbox" / "sandbox.sqlite3") as database:
        row = database.execute("select count(*) from executions where execution_id like ?", (f"{run_id}/%",)).fetchone()
    return int(row[0])


async def check(running: Processes, client: Client, *, answer: str, ran: int) -> None:
    """Nothing lost, nothing doubled, one terminal event, the right answer, the effect at most once."""
    assert client.seen[-1]["kind"] == "run_completed", client.seen[-1]
    sequences = [event["sequence"] for event in client.seen]
    assert sequences == sorted(set(sequences))
    kept = await watch(running, client.run_id)
    assert [e["sequence"] for e in kept if e["kind"] in TERMINAL] == [client.seen[-1]["sequence"]]
    lasting = {"run_started", "tool_call_proposed", "approval_requested", "approval_resolved", "tool_call_started"}
    facts = [(e["sequence"], e["kind"]) for e in kept if e["kind"] in lasting]
    assert [(e["sequence"], e["kind"]) for e in client.seen if e["kind"] in lasting] == facts
    assert of(kept, "run_completed")[0]["text"] == answer
    assert executions(running, client.run_id) == ran


def script(upstream: Upstream) -> None:
    upstream.reset()
    upstream.script(call("run_code", json.dumps({"code": CODE, "reason": "to compute"})), say("It is done."))


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("point", ["tool_call_proposed", "approval_requested", "run_paused"])
async def test_a_crash_before_the_decision(
    running: Processes, upstream: Upstream, point: str, number: signal.Signals
) -> None:
    script(upstream)
    client = Client(running)
    await client.ask(point)
    await restart(running, number)
    if not of(client.seen, "approval_requested"):
        await client.read("approval_requested")
    (asked,) = [event for event in client.seen if event["kind"] == "approval_requested"]
    await allow(running, asked)
    await client.rest()
    await check(running, client, answer="It is done.", ran=1)


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_crash_right_after_the_decision(running: Processes, upstream: Upstream, number: signal.Signals) -> None:
    script(upstream)
    client = Client(running)
    asked = await client.ask("approval_requested")
    await client.read("run_paused")
    await running.kill("orchestrator", number)
    await allow(running, asked)
    await running.start("orchestrator")
    await client.rest()
    await check(running, client, answer="It is done.", ran=1)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("point", ["tool_call_started", "effect"])
async def test_a_crash_while_the_code_runs(
    running: Processes, upstream: Upstream, point: str, number: signal.Signals
) -> None:
    script(upstream)
    client = Client(running)
    await allow(running, await client.ask("approval_requested"))
    await client.read("tool_call_started")
    while point == "effect" and "effect" not in _output(client):
        await client.read("tool_call_progress")
    await restart(running, number)
    await client.rest()
    finished = of(await watch(running, client.run_id), "tool_call_finished")
    # The interruption killed the code, or the execution is attached to again: either way it ran once, and is told.
    assert len(finished) == 1
    assert finished[0]["status"] in ("TOOL_STATUS_COMPLETED", "TOOL_STATUS_FAILED")
    await check(running, client, answer="It is done.", ran=1)


def _output(client: Client) -> str:
    return "".join(progress["text"] for progress in of(client.seen, "tool_call_progress"))


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_crash_in_the_middle_of_an_answer_retracts_and_answers_again(
    running: Processes, upstream: Upstream, number: signal.Signals
) -> None:
    upstream.reset()
    here = asyncio.Event()
    upstream.script(Turn(steps=(Say(pieces=("Half an ",)), Reach(event=here), Wait())), say("A whole answer."))
    client = Client(running)
    await client.ask("answer_delta")
    await here.wait()
    await restart(running, number)
    await client.rest()
    assert of(client.seen, "run_completed")[0]["text"] == "A whole answer."
    (retracted,) = of(client.seen, "answer_retracted")
    shown = [d for d in of(client.seen, "answer_delta") if d["model_call_id"] != retracted["model_call_id"]]
    assert "".join(d["text"] for d in shown) == "A whole answer."
    assert answer_text(client.seen).startswith("Half an ")


async def test_the_sandbox_may_die_too_and_the_run_goes_on(running: Processes, upstream: Upstream) -> None:
    script(upstream)
    client = Client(running)
    await allow(running, await client.ask("approval_requested"))
    await client.read("tool_call_progress")
    await running.kill("sandbox")
    await running.start("sandbox")
    await client.rest()
    assert client.seen[-1]["kind"] == "run_completed"
    (finished,) = of(client.seen, "tool_call_finished")
    assert finished["status"] == "TOOL_STATUS_FAILED"


async def test_approvals_outlive_their_service(running: Processes, upstream: Upstream) -> None:
    script(upstream)
    client = Client(running)
    asked = await client.ask("approval_requested")
    await client.read("run_paused")
    await running.kill("approval")
    await running.start("approval")
    await running.ready()
    await allow(running, asked)
    await client.rest()
    await check(running, client, answer="It is done.", ran=1)
