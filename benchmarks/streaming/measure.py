"""What is measured of a streaming server, the same for every one: first token, throughput, CPU, pacing, tool loop."""

from __future__ import annotations

import asyncio
import json
import statistics
import urllib.request
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.streaming.client import Heard, Stream, ask_all
from benchmarks.streaming.processes import Direct, Tree

TOKENS = 200
PACE_MS = 20
# Sustained: every stream's mean gap within 20 % of the pace, and the 95th percentile of the first token below 2 s.
PACE_TOLERANCE = 0.2
FIRST_LIMIT = 2.0
# Loops that are asked before those that count: nothing was asked of a tool before.
WARM_LOOPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server under measurement: its processes, where it listens, and how it is asked a prompt.

    `folder` is where it keeps its data, for those who look into it.
    """

    name: str
    tree: Tree
    port: int
    folder: Path | None = None
    path: str
    body: Callable[[str], dict[str, Any]]
    # How it is asked where it has a tool that needs neither approval nor arguments (by name, or 1 for its first one);
    # nothing is measured of tools without one.
    tool_path: str = ""
    tool_body: Callable[[str], dict[str, Any]] | None = None
    tool: str = "1"


class Unsound(Exception):
    """The server lost, doubled or withheld a token: there is no figure, for a fast wrong answer is worth nothing."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What was measured of a server, and what could not be, with why."""

    figures: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, what: str, ours: str, direct: str, ratio: str = "") -> None:
        """Print a line: what is measured, of the server, of the stock client, and how they compare."""
        print(f"{what:<48} {ours:>20} {direct:>20} {ratio:>10}", flush=True)

    async def take(self, what: str, measurement: Awaitable[None]) -> None:
        """Wait for a measurement; one that fails leaves no figure and takes no other with it."""
        try:
            await measurement
        except Unsound as error:
            self.failures.append(f"{what}: {error}")
            print(f"{what:<48} {error}", flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def check(heard: Sequence[Heard], tokens: int) -> None:
    """Raise Unsound when a stream lost or doubled a token."""
    for one in heard:
        if one.error or one.status != 200 or len(one.tokens) != tokens:
            raise Unsound(f"a stream of {tokens} tokens gave {len(one.tokens)}, HTTP {one.status} {one.error}")


async def stock_first(direct: Direct) -> float:
    """Return the milliseconds that the stock client takes to its first token now."""
    (seconds,) = (await direct.run(1, 1, "q [[n=20]]"))["first"]
    milliseconds: float = seconds * 1000
    return milliseconds


async def first_token(target: Target, direct: Direct, report: Report, repeats: int) -> None:
    """Alternate single streams of both, so that the machine's moods hit both."""
    ours, theirs = [], []
    stream = Stream(target.port)
    for _ in range(repeats):
        heard = await stream.ask(target.path, target.body("q [[n=20]]"))
        check([heard], 20)
        ours.append(heard.first * 1000)
        theirs.append(await stock_first(direct))
    stream.close()
    for name, of in (("median", statistics.median), ("p95", lambda values: percentile(values, 0.95))):
        pick: Callable[[list[float]], float] = of
        added = pick(ours) - pick(theirs)
        report.figures[f"first token {name}"] = added
        report.add(f"first token, {name}", f"{pick(ours):.2f} ms", f"{pick(theirs):.2f} ms", f"+{added:.2f} ms")


async def throughput(target: Target, direct: Direct, report: Report, streams: int, rounds: int) -> None:
    """Stream as fast as it goes on `streams` connections at once, by turns with the stock client."""
    rates, costs, their_rates, their_costs = [], [], [], []
    for _ in range(rounds):
        told = await direct.run(streams, 1, f"q [[n={TOKENS}]]")
        their_rates.append(told["tokens"] / told["wall"])
        their_costs.append(told["cpu"] / told["tokens"] * 1000)
        cpu = target.tree.cpu()
        heard = await ask_all(target.port, target.path, [target.body(f"q [[n={TOKENS}]]") for _ in range(streams)])
        check(heard, TOKENS)
        wall = max(one.ended for one in heard) - min(one.started for one in heard)
        rates.append(streams * TOKENS / wall)
        costs.append((target.tree.cpu() - cpu) / (streams * TOKENS) * 1000)
    rate, cost = statistics.median(rates), statistics.median(costs)
    their_rate, their_cost = statistics.median(their_rates), statistics.median(their_costs)
    report.figures[f"tokens/s {streams}"] = rate
    report.figures[f"cpu {streams}"] = cost
    report.add(f"tokens/s, {streams} streams", f"{rate:,.0f}", f"{their_rate:,.0f}", f"{rate / their_rate:.2f}x")
    report.add(
        f"CPU s per 1,000 tokens, {streams} streams", f"{cost:.4f}", f"{their_cost:.4f}", f"{cost / their_cost:.2f}x"
    )


async def paced(target: Target, report: Report, ladder: Sequence[int]) -> None:
    """Climb until streams of one token every 20 ms no longer keep their pace."""
    sustained = 0
    for streams in ladder:
        bodies = [target.body(f"q [[n=150 gap={PACE_MS}]]") for _ in range(streams)]
        heard = await ask_all(target.port, target.path, bodies)
        try:
            check(heard, 150)
        except Unsound:
            break
        slowest = percentile([one.mean_gap * 1000 for one in heard], 0.95)
        first = percentile([one.first for one in heard], 0.95)
        if slowest > PACE_MS * (1 + PACE_TOLERANCE) or first > FIRST_LIMIT:
            break
        sustained = streams
    report.figures["paced"] = sustained
    report.add(f"streams sustained at {PACE_MS} ms a token", str(sustained), "")


async def tool_loop(target: Target, direct: Direct, upstream_port: int, report: Report, repeats: int) -> None:
    """A round that calls a tool and a round that answers: what the server adds to the model's own time.

    The stock client's first token, by turns with it, tells how fast the machine was meanwhile.
    """
    if target.tool_body is None:
        return
    added, theirs = [], []
    stream = Stream(target.port)
    for number in range(WARM_LOOPS + repeats):
        key = uuid.uuid4().hex
        heard = await stream.ask(target.tool_path, target.tool_body(f"q [[n=20 gap=5 tool={target.tool} id={key}]]"))
        rounds = await asyncio.to_thread(_stats, upstream_port, key)
        if heard.error or len(rounds) != 2:
            raise Unsound(f"the tool loop took {len(rounds)} rounds, HTTP {heard.status} {heard.error}")
        if number >= WARM_LOOPS:
            added.append((heard.ended - heard.started - sum(r["ended"] - r["received"] for r in rounds)) * 1000)
            theirs.append(await stock_first(direct))
    stream.close()
    loop, first = statistics.median(added), statistics.median(theirs)
    report.figures["tool loop"] = loop
    report.add(
        "two-round tool loop, added; beside a first token", f"{loop:.1f} ms", f"{first:.2f} ms", f"{loop / first:.2f}x"
    )


def _stats(port: int, key: str) -> list[dict[str, float]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats?id={key}", timeout=5) as reply:
        rounds: list[dict[str, float]] = json.load(reply)
        return rounds


async def measure(target: Target, direct: Direct, upstream_port: int, *, quick: bool) -> Report:
    """Measure everything of one server and return the report, which is printed as it grows."""
    report = Report()
    await ask_all(target.port, target.path, [target.body("warm [[n=50]]") for _ in range(20)])
    await direct.run(4, 5, "warm [[n=50]]")
    report.add("", target.name, "openai client")
    await report.take("first token", first_token(target, direct, report, 20 if quick else 100))
    for streams in (1, 32) if quick else (1, 32, 200):
        await report.take(f"{streams} streams", throughput(target, direct, report, streams, 1 if quick else 3))
    await report.take("tool loop", tool_loop(target, direct, upstream_port, report, 5 if quick else 25))
    ladder = (10, 20, 40) if quick else (10, 25, 50, 75, 100, 150, 200, 250, 300, 400)
    await report.take("paced streams", paced(target, report, ladder))
    return report
