"""Streaming through gateway and orchestrator, journal on, beside the stock `openai` client on the same upstream.

    python benchmarks/stream.py [--quick]

The suite's whole process tree shares one core; the scripted model and this client have the other. Both sides stream
200 tokens in the same run, so the ratios mean something on any machine; absolute figures only on an idle one.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvloop

from benchmarks.streaming.client import Heard, Stream, ask_all
from benchmarks.streaming.suite import Direct, Suite, start_suite, start_upstream

CHAT = "/v1/chat/completions"
RUNS = "/v1/runs"
TOKENS = 200
PACE_MS = 20
# Sustained: every stream's mean gap within 20 % of the pace, and the 95th percentile of the first token below 2 s.
PACE_TOLERANCE = 0.2
FIRST_LIMIT = 2.0


@dataclass(slots=True, kw_only=True)
class Report:
    """Lines of the table."""

    rows: list[tuple[str, str, str, str]] = field(default_factory=list)

    def add(self, what: str, suite: str, direct: str, ratio: str = "") -> None:
        self.rows.append((what, suite, direct, ratio))
        print(f"{what:<46} {suite:>22} {direct:>22} {ratio:>10}", flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def chat(prompt: str) -> dict[str, Any]:
    return {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": prompt}]}


def check(heard: Sequence[Heard], tokens: int) -> None:
    """End the measurement when a stream lost or doubled a token: a fast wrong answer is worth nothing."""
    for one in heard:
        if one.error or one.status != 200 or len(one.tokens) != tokens:
            raise SystemExit(f"a stream of {tokens} tokens gave {len(one.tokens)}, HTTP {one.status} {one.error}")


async def first_token(suite: Suite, direct: Direct, report: Report, repeats: int) -> None:
    """Alternate single streams of both, so that the machine's moods hit both."""
    ours, theirs = [], []
    stream = Stream(suite.port)
    for _ in range(repeats):
        heard = await stream.ask(CHAT, chat("q [[n=20]]"))
        check([heard], 20)
        ours.append(heard.first * 1000)
        theirs += [value * 1000 for value in (await direct.run(1, 1, "q [[n=20]]"))["first"]]
    stream.close()
    for name, of in (("median", statistics.median), ("p95", lambda values: percentile(values, 0.95))):
        pick: Callable[[list[float]], float] = of
        added = pick(ours) - pick(theirs)
        report.add(f"first token, {name}", f"{pick(ours):.2f} ms", f"{pick(theirs):.2f} ms", f"+{added:.2f} ms")


async def throughput(suite: Suite, direct: Direct, report: Report, streams: int, rounds: int) -> None:
    """Stream as fast as it goes on `streams` connections at once."""
    rates, costs = [], []
    for _ in range(rounds):
        cpu = suite.cpu()
        heard = await ask_all(suite.port, CHAT, [chat(f"q [[n={TOKENS}]]")] * streams)
        check(heard, TOKENS)
        wall = max(one.ended for one in heard) - min(one.started for one in heard)
        rates.append(streams * TOKENS / wall)
        costs.append((suite.cpu() - cpu) / (streams * TOKENS) * 1000)
    told = await direct.run(streams, 1, f"q [[n={TOKENS}]]")
    rate, cost = statistics.median(rates), statistics.median(costs)
    their_rate, their_cost = told["tokens"] / told["wall"], told["cpu"] / told["tokens"] * 1000
    report.add(f"tokens/s, {streams} streams", f"{rate:,.0f}", f"{their_rate:,.0f}", f"{rate / their_rate:.2f}x")
    report.add(
        f"CPU s per 1,000 tokens, {streams} streams", f"{cost:.4f}", f"{their_cost:.4f}", f"{cost / their_cost:.2f}x"
    )


async def paced(suite: Suite, report: Report, ladder: Sequence[int]) -> None:
    """Climb until streams of one token every 20 ms no longer keep their pace."""
    sustained = 0
    for streams in ladder:
        heard = await ask_all(suite.port, CHAT, [chat(f"q [[n=150 gap={PACE_MS}]]")] * streams)
        check(heard, 150)
        slowest = percentile([one.mean_gap * 1000 for one in heard], 0.95)
        first = percentile([one.first for one in heard], 0.95)
        if slowest > PACE_MS * (1 + PACE_TOLERANCE) or first > FIRST_LIMIT:
            break
        sustained = streams
    report.add(f"streams sustained at {PACE_MS} ms a token", str(sustained), "")


async def tool_loop(suite: Suite, upstream_port: int, report: Report, repeats: int) -> None:
    """A round that calls a tool and a round that answers: what the suite adds to the model's own time."""
    added = []
    stream = Stream(suite.port)
    for _ in range(repeats):
        key = uuid.uuid4().hex
        body = {"model": "scripted", "agent_id": "assistant", "input": f"q [[n=20 gap=5 tool=1 id={key}]]"}
        heard = await stream.ask(RUNS, body)
        rounds = await asyncio.to_thread(_stats, upstream_port, key)
        if heard.error or len(rounds) != 2:
            raise SystemExit(f"the tool loop took {len(rounds)} rounds, HTTP {heard.status} {heard.error}")
        added.append((heard.ended - heard.started - sum(r["ended"] - r["received"] for r in rounds)) * 1000)
    stream.close()
    report.add("two-round tool loop, added", f"{statistics.median(added):.1f} ms", "")


def _stats(port: int, key: str) -> list[dict[str, float]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats?id={key}", timeout=5) as reply:
        rounds: list[dict[str, float]] = json.load(reply)
        return rounds


async def measure(*, quick: bool) -> None:
    upstream, upstream_port = start_upstream(core=1)
    direct = Direct(upstream_port, core=0)
    suite = None
    report = Report()
    try:
        suite = start_suite(upstream_port, core=0)
        await ask_all(suite.port, CHAT, [chat("warm [[n=50]]")] * 20)
        await direct.run(4, 5, "warm [[n=50]]")
        report.add("", "proctor", "openai client")
        await first_token(suite, direct, report, 20 if quick else 100)
        for streams in (1, 32) if quick else (1, 32, 200):
            await throughput(suite, direct, report, streams, 1 if quick else 3)
        await tool_loop(suite, upstream_port, report, 5 if quick else 25)
        await paced(suite, report, (10, 20, 40) if quick else (25, 50, 75, 100, 150, 200, 250, 300, 400))
    finally:
        direct.stop()
        if suite is not None:
            suite.stop()
        upstream.kill()
        upstream.wait()


if __name__ == "__main__":
    uvloop.run(measure(quick="--quick" in sys.argv[1:]))
