"""What telemetry costs a token: the same suite with and without it, at the same time.

    python benchmarks/telemetry.py [--launches 10] [--rounds 2] [--exporter otlp-http]

Prints microseconds of CPU per token for both, and the median of their ratios with a 95 % interval. What makes the
ratio hold on a machine that does much else:

- The CPU time of processes counts, not the wall's; clients and model work in other processes.
- Both work at the same time, so whatever the machine does in a round it does to both.
- A third suite is without telemetry as well: its ratio to the other one without is what is seen where there is no
  difference, and its interval is what the machine allows to be told.
- All are started anew for each ratio: no two processes are alike, and one pair's difference is not telemetry's.
- Each round ends with everything exported, in the round's own account, and nothing is exported in between. That is
  an export of metrics for each round, more than the default interval makes.

Every span and metric is made, batched, and written as JSON lines; `--exporter otlp-http` sends it to a server that
throws it away.
"""

from __future__ import annotations

import argparse
import asyncio
import http.server
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.streaming.client import ask_all
from benchmarks.streaming.processes import start_upstream
from services.chassis.telemetry import Exporter

ROOT = Path(__file__).resolve().parents[1]
STREAMS = 4
TOKENS = 500
# Milliseconds between two tokens of one stream: 100 tokens a second, as fast models write.
GAP = 10
BODY = {"input": f"Write. [[n={TOKENS} gap={GAP}]]", "agent_id": "assistant"}
TARGET = 1.05


class Side:
    """A suite in a process of its own."""

    def __init__(self, upstream: str, exporter: Exporter, file: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.streaming.telemetry_side", upstream, exporter.value, str(file)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.port = 0

    def ready(self) -> None:
        """Wait until it serves."""
        self.port = int(self._told())

    def begin(self) -> None:
        self._say("begin")
        self._told()

    def end(self) -> float:
        """Return microseconds of CPU per token since `begin`."""
        self._say("end")
        return float(self._told()) / (STREAMS * TOKENS) * 1e6

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")

    def _told(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


async def one_round(sides: Sequence[Side]) -> list[float]:
    """Let `STREAMS` runs stream in each suite at once; return what each used."""
    for side in sides:
        await asyncio.to_thread(side.begin)
    heard = await asyncio.gather(*(ask_all(side.port, "/v1/runs", [BODY] * STREAMS) for side in sides))
    for stream in (each for streams in heard for each in streams):
        if stream.error or len(stream.tokens) != TOKENS:
            raise SystemExit(f"a stream of {TOKENS} tokens gave {len(stream.tokens)}: {stream.error}")
    return [await asyncio.to_thread(side.end) for side in sides]


async def launch(number: int, rounds: int, upstream: str, exporter: Exporter, folder: Path) -> list[float]:
    """Start the three suites and return what each used in the median of its rounds: off, off, on."""
    exporters = [Exporter.NONE, Exporter.NONE, exporter]
    # Who starts first and is asked first changes from launch to launch.
    order = [(number + place) % 3 for place in range(3)]
    sides = [Side(upstream, exporters[which], folder / "telemetry.jsonl") for which in order]
    try:
        for side in sides:
            await asyncio.to_thread(side.ready)
        await one_round(sides)
        used = [await one_round(sides) for _ in range(rounds)]
    finally:
        for side in sides:
            side.stop()
    return [statistics.median(each[order.index(which)] for each in used) for which in range(3)]


async def main(launches: int, rounds: int, exporter: Exporter) -> bool:
    """Measure and print; return whether the ratio is within its target, as far as the machine allows to tell."""
    launched: list[list[float]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream, port = start_upstream(0)
        stack.callback(upstream.wait)
        stack.callback(upstream.terminate)
        if exporter is Exporter.OTLP_HTTP:
            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = stack.enter_context(sink())
        for number in range(launches):
            launched.append(await launch(number, rounds, f"http://127.0.0.1:{port}/v1", exporter, folder))
            print(" ".join(f"{cost:6.1f}" for cost in launched[-1]), flush=True)
    noise = [other / one for one, other, _ in launched]
    # Against the mean of both that are without it, which adds less to the spread than one of them.
    ratios = [2 * on / (one + other) for one, other, on in launched]
    print(f"{STREAMS} streams of {TOKENS} tokens, {1000 // GAP} a second; {launches} launches, {exporter.value}")
    without = statistics.median((one + other) / 2 for one, other, _ in launched)
    print(f"without telemetry {without:6.1f} µs of CPU per token")
    print(f"with telemetry    {statistics.median(on for *_, on in launched):6.1f} µs of CPU per token")
    print(f"off against off   {told(noise)}")
    print(f"on against off    {told(ratios)} (target {TARGET})")
    return interval(ratios)[0] <= TARGET


def told(ratios: Sequence[float]) -> str:
    """Return the median of ratios with its 95 % interval, as text."""
    low, high = interval(ratios)
    return f"{statistics.median(ratios):6.3f}, 95 % interval {low:.3f} to {high:.3f}"


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median from its order statistics (normal approximation of the binomial)."""
    ordered, reach = sorted(ratios), 0.98 * len(ratios) ** 0.5
    low = max(0, int(len(ordered) / 2 - reach))
    return ordered[low], ordered[-1 - low]


class Sink(http.server.BaseHTTPRequestHandler):
    """Takes everything and keeps nothing."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read the export and say that all is well."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


@contextmanager
def sink() -> Iterator[str]:
    """Serve on a thread of this process, which is not measured, and yield the address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure what telemetry costs a token.")
    parser.add_argument("--launches", type=int, default=10, help="about 30 seconds each")
    parser.add_argument("--rounds", type=int, default=2, help="of each launch")
    parser.add_argument("--exporter", type=Exporter, default=Exporter.FILE, choices=[Exporter.FILE, Exporter.OTLP_HTTP])
    wanted = parser.parse_args()
    sys.exit(0 if uvloop.run(main(wanted.launches, wanted.rounds, wanted.exporter)) else 1)
