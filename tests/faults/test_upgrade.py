"""Two versions side by side over one PostgreSQL: the new one takes over, clients notice nothing, old ones stay out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
import sqlalchemy as sa

from services.chassis.database import open_engine
from tests.support.processes import Processes, processes
from tests.support.suite import free_port
from tests.support.suite_steps import TERMINAL, answer_text, ask, follow, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import Reach, Say, Turn, Wait, call, say

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]
ASKING = {"name": "asking", "tools": [{"tool": "current_time", "policy": "TOOL_POLICY_ASK"}]}
# The version before: today's code, which reads saved states up to the first version only and says so when it claims.
OLD_VERSION = """
import services.orchestrator.bootstrap as bootstrap, services.orchestrator.continuation as continuation
bootstrap.READER = continuation.READER = 1
from services.chassis.serve import main
main("orchestrator")
"""


@pytest_asyncio.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as server:
        yield server


@pytest_asyncio.fixture
async def old_alone(upstream: Upstream, postgres_url: str) -> AsyncIterator[Processes]:
    """The old version serves alone; the address of the new one is known and answers nothing yet."""
    ports = {"old": free_port(), "new": free_port()}
    async with processes(
        model=upstream.base_url,
        services=("approval",),
        PROCTOR_ORCHESTRATOR_DATABASE_URL=postgres_url,
        PROCTOR_ORCHESTRATOR_LEASE="2",
        PROCTOR_GATEWAY_ORCHESTRATOR_TARGET="ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports.values()),
        PROCTOR_NEW_LISTEN=f"127.0.0.1:{ports['new']}",
        wait=False,
    ) as running:
        await start(running, "old", f"127.0.0.1:{ports['old']}", program=OLD_VERSION)
        yield running


async def start(running: Processes, name: str, listen: str, *, program: str = "") -> None:
    await running.start(name, "orchestrator", program=program, PROCTOR_ORCHESTRATOR_LISTEN=listen)
    await serves(running)


async def serves(running: Processes) -> None:
    """Wait until runs can be listed; retrieval and sandbox, which nobody needs here, are not there."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await running.http.get("/v1/runs")).status_code == 200:
                    return
            await asyncio.sleep(0.05)


async def paused(running: Processes, upstream: Upstream) -> tuple[str, str, int]:
    """Start a run that waits for a decision; return its id, what it waits for, and its last sequence."""
    upstream.script(call("current_time", json.dumps({"reason": "r"})))
    events = await ask(running, "What time is it?", inline_agent=ASKING, hold=0)
    return events[0]["run_id"], of(events, "approval_requested")[0]["approval_id"], events[-1]["sequence"]


async def approve(running: Processes, approval_id: str) -> None:
    reply = await running.http.post(f"/v1/approvals/{approval_id}/decision", json={"decision": "approve"})
    reply.raise_for_status()


async def state_of(url: str, run_id: str) -> tuple[int, int]:
    """Return a run's epoch and attempt: both grow when somebody takes it."""
    engine = open_engine(url)
    async with engine.connect() as connection:
        query = sa.text("SELECT epoch, attempt FROM runs WHERE run_id = :run_id")
        row = (await connection.execute(query, {"run_id": run_id})).one()
    await engine.dispose()
    return row.epoch, row.attempt


async def needs_the_new_version(url: str, run_id: str) -> None:
    """Mark a waiting run as a new version would that saved what the old one cannot read."""
    engine = open_engine(url)
    async with engine.begin() as connection:
        query = sa.text("UPDATE runs SET min_reader = 2 WHERE run_id = :run_id")
        assert (await connection.execute(query, {"run_id": run_id})).rowcount == 1
    await engine.dispose()


async def test_the_new_version_takes_over_without_a_client_noticing(
    old_alone: Processes, upstream: Upstream, postgres_url: str
) -> None:
    running = old_alone
    waiting, approval_id, seen_to = await paused(running, upstream)
    here, rest = asyncio.Event(), Wait()
    upstream.script(Turn(steps=(Say(pieces=("Half ",)), Reach(event=here), rest)), say("A whole answer."))
    stream = follow(running, "POST", "/v1/runs", body={"input": "Tell me."})
    seen: list[dict[str, Any]] = []
    async for event in stream:
        seen.append(event)
        if event["kind"] == "answer_delta":
            break
    await here.wait()
    # Both serve, then the old one is told to end in the middle of an answer: it hands its runs over.
    await start(running, "new", running.variables["PROCTOR_NEW_LISTEN"])
    await running.kill("old", signal.SIGTERM)
    seen += [event async for event in stream]
    assert [event["kind"] for event in seen if event["kind"] in TERMINAL] == ["run_completed"]
    assert of(seen, "run_completed")[0]["text"] == "A whole answer."
    sequences = [event["sequence"] for event in seen]
    assert sequences == sorted(set(sequences))
    # What waited before the upgrade goes on after it, from the state that the old version saved.
    upstream.script(say("It is late."))
    await approve(running, approval_id)
    events = await watch(running, waiting, seen_to)
    assert answer_text(events) == of(events, "run_completed")[0]["text"] == "It is late."


async def test_the_old_version_leaves_alone_what_only_the_new_one_reads(
    old_alone: Processes, upstream: Upstream, postgres_url: str
) -> None:
    running = old_alone
    waiting, approval_id, seen_to = await paused(running, upstream)
    await needs_the_new_version(postgres_url, waiting)
    before = await state_of(postgres_url, waiting)
    await approve(running, approval_id)
    # Proof that the old version looks at what was decided: a later decision of its own kind it takes up.
    other, other_approval, other_seen = await paused(running, upstream)
    upstream.script(say("The old one answers."))
    await approve(running, other_approval)
    assert of(await watch(running, other, other_seen), "run_completed")[0]["text"] == "The old one answers."
    assert await state_of(postgres_url, waiting) == before
    upstream.script(say("The new one answers."))
    await start(running, "new", running.variables["PROCTOR_NEW_LISTEN"])
    events = await watch(running, waiting, seen_to)
    assert of(events, "run_completed")[0]["text"] == "The new one answers."
