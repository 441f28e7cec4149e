"""Pausing and resuming a run: what asking a person costs beside the model's own time, and what a pause writes.

    python benchmarks/pause.py [--runs N]

`proctor up` with its processes as a user runs them, and a scripted model that answers at once in another process, whose
clock tells when it got a request and when it had sent its last byte. For each run:
 - answer: from the model's last byte to the terminal event at the client, of a run that only answers;
 - pause: the same to `run_paused`, of a run whose model calls a tool of the caller. What it takes over the answer is
   what asking costs: the gateway, the stream and one commit are in both;
 - resume: from sending the decision to the model's next request, and the round trip of a request that decides nothing
   (GET /v1/runs/ID), which is in it.
Each is told also in times of what the stock `openai` client takes to the first token of the same scripted model, by
turns in the same run: 2.5 ms on the machine that the targets (5 and 6 ms) were set on, so whatever the machine at hand,
a pause may take twice as long and a resume 2.4 times.
Bytes are those of the pause's checkpoint: its head, and the segments that came after the run's admission, for a
conversation of two messages with one pending call.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.streaming.measure import Target
from benchmarks.streaming.processes import Direct, start_upstream
from benchmarks.streaming.suite import proctor

MOST_BYTES = 3_500
# In times of the stock client's first token.
MOST_PAUSE, MOST_RESUME = 5 / 2.5, 6 / 2.5
TOOL = {"name": "theirs", "description": "", "parameters_json": {"type": "object"}}
WARM_UP = 5


class Bench:
    """One suite, one scripted model, one client connection."""

    def __init__(self, target: Target, upstream_port: int) -> None:
        self._target = target
        self._client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{target.port}", timeout=60)
        self._model = httpx.AsyncClient(base_url=f"http://127.0.0.1:{upstream_port}")

    async def close(self) -> None:
        await self._client.aclose()
        await self._model.aclose()

    async def until(self, kind: str, script: str, **body: object) -> tuple[str, float, float]:
        """Ask with a script for the model; return the run, when `kind` came, and the model's last byte before it."""
        key = uuid.uuid4().hex
        content = {"input": f"Is it? [[{script} id={key}]]", "model": "scripted", "agent_id": "assistant", **body}
        async with self._client.stream("POST", "/v1/runs", json=content) as response:
            response.raise_for_status()
            run_id, at = await first_of(kind, response)
        return run_id, at, (await self.requests(key))[-1]["ended"]

    async def requests(self, key: str) -> list[dict[str, float]]:
        """Return when the model got each request of a script, and when it had answered it."""
        found: list[dict[str, float]] = (await self._model.get(f"/stats?id={key}")).json()
        return found

    async def answered(self) -> float:
        _, at, ended = await self.until("run_completed", "n=1")
        return at - ended

    async def paused(self) -> tuple[str, float]:
        """Return the run and how long its pause took."""
        run_id, at, ended = await self.until("run_paused", f"n=1 tool={TOOL['name']}", client_tools=[TOOL], hold=0)
        return run_id, at - ended

    async def resumed(self, run_id: str) -> tuple[float, float]:
        """Return how long a resume took to the model's next request, and an empty round trip."""
        begun = time.monotonic()
        state = (await self._client.get(f"/v1/runs/{run_id}")).json()
        trip = time.monotonic() - begun
        decision = {"call_id": state["pending"][0]["call_id"], "client_tool": {"result": "7"}}
        begun = time.monotonic()
        body = {"decisions": [decision], "hold": 0}
        (await self._client.post(f"/v1/runs/{run_id}/resume", json=body)).raise_for_status()
        async with self._client.stream("GET", f"/v1/runs/{run_id}/events") as response:
            await first_of("run_completed", response)
        times = await self.requests(state["question"].partition("id=")[2].partition("]")[0])
        return times[1]["received"] - begun, trip

    def written(self, run_id: str) -> int:
        """Return bytes of the pause's checkpoint: its head and the segments that came after the run's admission."""
        assert self._target.folder is not None
        with sqlite3.connect(self._target.folder / "orchestrator.sqlite3") as database:
            (head,) = database.execute("select length(head) from checkpoints where run_id = ?", (run_id,)).fetchone()
            added = "select sum(length(content)) from segments where run_id = ? and kind not in ('agent', 'tools')"
            rows = database.execute(added, (run_id,)).fetchone()
        return int(head) + int(rows[0] or 0)


async def first_of(kind: str, response: httpx.Response) -> tuple[str, float]:
    """Return the run's id and when the first event of `kind` came."""
    async for line in response.aiter_lines():
        if line.startswith("data:") and f'"{kind}"' in line:
            at = time.monotonic()
            event: Mapping[str, Any] = json.loads(line[5:])
            return event["run_id"], at
    raise SystemExit(f"{kind} never came")


async def main(runs: int) -> int:
    answers: list[float] = []
    pauses: list[float] = []
    resumes: list[float] = []
    trips: list[float] = []
    sizes: list[int] = []
    stock: list[float] = []
    upstream, port = start_upstream(core=None)
    direct = Direct(port, core=None)
    try:
        with proctor(port, core=None) as target:
            bench = Bench(target, port)
            for number in range(-WARM_UP, runs):
                answer = await bench.answered()
                run_id, pause = await bench.paused()
                size = bench.written(run_id)
                resume, trip = await bench.resumed(run_id)
                (first,) = (await direct.run(1, 1, "q [[n=1]]"))["first"]
                if number >= 0:
                    times = (answers, answer), (pauses, pause), (resumes, resume), (trips, trip), (stock, first)
                    for values, value in times:
                        values.append(value * 1e3)
                    sizes.append(size)
            await bench.close()
    finally:
        direct.stop()
        upstream.kill()
        upstream.wait()
    yard = statistics.median(stock)
    show("the stock client, to its first token", stock)
    show("an answer, last byte to terminal event", answers)
    paused = show("a pause, last byte to run_paused", pauses, answers, "the answer")
    resumed = show("a resume, decision to the next model request", resumes, trips, "an empty round trip")
    print(f"{'a pause over an answer, in stock first tokens':46} {paused / yard:7.2f} times, at most {MOST_PAUSE:.2f}")
    print(f"{'a resume over a round trip, the same':46} {resumed / yard:7.2f} times, at most {MOST_RESUME:.2f}")
    print(f"{'written for a pause':46} {max(sizes):7d} bytes, at most {MOST_BYTES}")
    kept = max(sizes) <= MOST_BYTES and paused <= MOST_PAUSE * yard and resumed <= MOST_RESUME * yard
    return 0 if kept else 1


def show(what: str, values: list[float], base: list[float] | None = None, of: str = "") -> float:
    """Print a row: the median, the fastest tenth, and the median over that of `base`, which is returned."""
    median, fast = statistics.median(values), sorted(values)[len(values) // 10]
    over = median - (statistics.median(base) if base else 0.0)
    told = f"   {over:+.2f} ms over {of}" if base else ""
    print(f"{what:46} {median:7.2f} ms, one in ten below {fast:.2f}{told}")
    return over


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    sys.exit(uvloop.run(main(parser.parse_args().runs)))
