"""What telemetry costs a token: the same suite with and without it, side by side in one process, by turns.

Prints microseconds of CPU per token for both and the median of their ratios. With telemetry every span and
metric is made, batched and written as by the file exporter. Usage: python benchmarks/telemetry.py [ROUNDS]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.streaming.client import ask_all
from benchmarks.streaming.processes import start_upstream
from services.chassis.telemetry import Exporter, Telemetry, TelemetrySettings, no_telemetry, open_telemetry
from tests.support.platform import test_platform
from tests.support.suite import Suite, suite

STREAMS = 8
TOKENS = 500
# Milliseconds between two tokens of one stream: 100 tokens a second, as fast models write.
GAP = 10
SERVICES = ("approval", "retrieval", "orchestrator")


async def round_of(running: Suite) -> float:
    """Let `STREAMS` runs stream at once and return microseconds of CPU per token."""
    body = {"input": f"Write. [[n={TOKENS} gap={GAP}]]", "agent_id": "assistant"}
    begun = time.process_time()
    heard = await ask_all(urlsplit(running.base_url).port or 0, "/v1/runs", [body] * STREAMS)
    used = time.process_time() - begun
    for each in heard:
        assert not each.error, each.error
        assert len(each.tokens) == TOKENS, len(each.tokens)
    return used / (STREAMS * TOKENS) * 1e6


async def main(rounds: int) -> None:
    """Measure and print."""
    upstream, port = start_upstream(0)
    url = f"http://127.0.0.1:{port}/v1"
    pairs: list[tuple[float, float]] = []
    try:
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            settings = TelemetrySettings(exporter=Exporter.FILE, file=folder / "telemetry.jsonl")
            silent, told = no_telemetry(), open_telemetry("bench", "0", settings)
            stack.push_async_callback(told.shutdown)

            async def started(telemetry: Telemetry) -> Suite:
                platform = test_platform(telemetry=telemetry)
                # A busy machine must not cost a lease.
                running = suite(model=url, platform=platform, services=SERVICES, PROCTOR_ORCHESTRATOR_LEASE="60")
                return await stack.enter_async_context(running)

            without, with_it = await started(silent), await started(told)
            for each in (without, with_it):
                await round_of(each)
            for number in range(rounds):
                # By turns, the order changed each time, so that a busy machine harms both alike.
                order = (without, with_it) if number % 2 else (with_it, without)
                costs = {id(each): await round_of(each) for each in order}
                pairs.append((costs[id(without)], costs[id(with_it)]))
            await told.shutdown()
            lines = (folder / "telemetry.jsonl").read_text().count("\n")
    finally:
        upstream.terminate()
        upstream.wait()
    off, on = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(on / off for off, on in pairs)
    print(f"{STREAMS} streams of {TOKENS} tokens at {1000 // GAP} tokens/s each, {rounds} rounds by turns")
    print(f"without telemetry {off:6.1f} µs of CPU per token")
    print(f"with telemetry    {on:6.1f} µs of CPU per token ({lines} lines written)")
    print(f"median of ratios  {ratio:6.3f}")


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8))
