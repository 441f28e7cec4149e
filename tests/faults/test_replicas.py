"""Two orchestrators over one PostgreSQL: a dead or frozen owner's runs go on elsewhere, and clients notice nothing."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest
import pytest_asyncio

from tests.support.processes import Processes, processes
from tests.support.suite import free_port
from tests.support.suite_steps import TERMINAL, follow, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import Reach, Say, Turn, Wait, say

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]
LEASE = 3.0


@pytest_asyncio.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as server:
        yield server


@pytest_asyncio.fixture
async def replicas(upstream: Upstream, postgres_url: str) -> AsyncIterator[Processes]:
    """Two orchestrators behind one gateway, which spreads its calls over both."""
    ports = [free_port(), free_port()]
    async with processes(
        model=upstream.base_url,
        services=("approval", "retrieval"),
        PROCTOR_ORCHESTRATOR_DATABASE_URL=postgres_url,
        PROCTOR_ORCHESTRATOR_LEASE=str(LEASE),
        PROCTOR_GATEWAY_ORCHESTRATOR_TARGET="ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports),
        wait=False,
    ) as running:
        for name, port in zip("ab", ports, strict=True):
            await running.start(name, "orchestrator", PROCTOR_ORCHESTRATOR_LISTEN=f"127.0.0.1:{port}")
        await running.ready()
        yield running


def owner_of(replicas: Processes, upstream: Upstream) -> str:
    """Return the replica that is connected to the model's server."""
    port = int(upstream.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
    for name in "ab":
        for connection in psutil.Process(replicas.running[name].pid).net_connections("tcp"):
            if getattr(connection.raddr, "port", 0) == port:
                return name
    raise AssertionError("nobody called the model")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
async def test_the_other_replica_takes_the_run_up_within_the_lease_and_two_seconds(
    replicas: Processes, upstream: Upstream, number: signal.Signals
) -> None:
    here = asyncio.Event()
    upstream.script(Turn(steps=(Say(pieces=("Half ",)), Reach(event=here), Wait())), say("A whole answer."))
    seen: list[dict[str, Any]] = []
    stream = follow(replicas, "POST", "/v1/runs", body={"input": "Tell me."})
    async for event in stream:
        seen.append(event)
        if event["kind"] == "answer_delta":
            break
    await here.wait()
    run_id = seen[0]["run_id"]
    process = replicas.running[owner_of(replicas, upstream)]
    begun = time.monotonic()
    process.send_signal(number)
    rest = await watch(replicas, run_id, seen[-1]["sequence"])
    took = time.monotonic() - begun
    if number is signal.SIGSTOP:
        process.send_signal(signal.SIGCONT)
    assert of(rest, "run_completed")[0]["text"] == "A whole answer."
    assert len(of(rest, "answer_retracted")) == 1
    whole = await watch(replicas, run_id)
    assert [event["kind"] for event in whole if event["kind"] in TERMINAL] == ["run_completed"]
    sequences = [event["sequence"] for event in whole]
    assert sequences == sorted(set(sequences))
    # The zombie's writes are refused: what it still says reaches nobody.
    assert whole[-1]["kind"] == "run_completed"
    assert took < LEASE + 2 + 3  # three seconds for a machine that runs everything at once
