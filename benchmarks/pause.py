"""Pausing and resuming a run: what asking a person costs beside the model's own time, and what a pause writes.

Usage: `python benchmarks/pause.py [--runs N]`. Gateway, orchestrator and approval on one event loop, a scripted model
that answers at once. For each run:
 - pause: from the model's last byte to `run_paused` at the client, over the same from the last byte to the terminal
   event of a run that only answers (so the model, the gateway and the stream are in both);
 - resume: from the decision's request to the model's next request, over an empty decision round trip.
Bytes are those of the last checkpoint's head and of the segments that the pause added, for a conversation of two
messages with one pending call.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import sys
import time
from pathlib import Path

import uvloop

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "protos" / "gen")]

from tests.support.suite import Suite, suite  # noqa: E402
from tests.support.suite_steps import follow, watch  # noqa: E402
from tests.support.upstream import Upstream  # noqa: E402
from tests.support.upstream_script import call, say  # noqa: E402

MOST_BYTES = 3_500
TOOL = {"name": "theirs", "description": "", "parameters_json": {"type": "object"}}


async def until(running: Suite, kind: str, question: str, **body: object) -> tuple[str, float]:
    """Ask, and return the run's id and when an event of `kind` came."""
    run_id = ""
    async for event in follow(running, "POST", "/v1/runs", body={"input": question, **body}):
        run_id = event["run_id"]
        if event["kind"] == kind:
            return run_id, time.perf_counter()
    raise RuntimeError(f"{kind} never came")


async def answered(running: Suite, upstream: Upstream) -> float:
    """Return seconds from the model's last byte to the terminal event of a run that only answers."""
    upstream.reset()
    upstream.script(say("Yes."))
    _, at = await until(running, "run_completed", "Is it?")
    return at - await served_at(upstream)


async def served_at(upstream: Upstream) -> float:
    request = await upstream.next_request()
    await request.served.wait()
    return request.served_at


async def paused(running: Suite, upstream: Upstream) -> tuple[str, float]:
    """Return the run and seconds from the model's last byte to its pause."""
    upstream.reset()
    upstream.script(call("theirs", "{}"), say("Done."))
    run_id, at = await until(running, "run_paused", "Ask me?", client_tools=[TOOL], hold=0)
    return run_id, at - await served_at(upstream)


async def resumed(running: Suite, upstream: Upstream, run_id: str) -> float:
    """Return seconds from the decision's request to the model's next request."""
    pending = (await running.http.get(f"/v1/runs/{run_id}")).json()["pending"][0]["call_id"]
    body = {"decisions": [{"call_id": pending, "client_tool": {"result": "7"}}], "hold": 0}
    begun = time.perf_counter()
    sent = asyncio.create_task(running.http.post(f"/v1/runs/{run_id}/resume", json=body))
    request = await upstream.next_request()
    took = request.received_at - begun
    (await sent).raise_for_status()
    await watch(running, run_id)
    return took


def written(running: Suite, run_id: str) -> int:
    """Return bytes of the pause's checkpoint: its head and the segments that came after the run's admission."""
    with sqlite3.connect(running.folder / "orchestrator" / "orchestrator.sqlite3") as database:
        (head,) = database.execute("select length(head) from checkpoints where run_id = ?", (run_id,)).fetchone()
        added = "select sum(length(content)) from segments where run_id = ? and kind not in ('agent', 'tools')"
        rows = database.execute(added, (run_id,)).fetchone()
    return int(head) + int(rows[0] or 0)


async def main(runs: int) -> int:
    answers, pauses, resumes, sizes = [], [], [], []
    async with Upstream() as upstream, suite(model=upstream.base_url, services=("approval", "orchestrator")) as running:
        for _ in range(runs):
            answers.append(await answered(running, upstream))
            run_id, took = await paused(running, upstream)
            pauses.append(took)
            sizes.append(written(running, run_id))
            resumes.append(await resumed(running, upstream, run_id))
    base, pause, resume = (statistics.median(values) * 1e3 for values in (answers, pauses, resumes))
    print(f"{'an answer, last byte to terminal event':44} {base:7.2f} ms")
    print(f"{'a pause, last byte to run_paused':44} {pause:7.2f} ms   {pause - base:+.2f} ms over the answer")
    print(f"{'a resume, decision to the next model request':44} {resume:7.2f} ms")
    print(f"{'written for a pause':44} {max(sizes):7d} bytes")
    return 0 if max(sizes) <= MOST_BYTES else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    sys.exit(uvloop.run(main(parser.parse_args().runs)))
