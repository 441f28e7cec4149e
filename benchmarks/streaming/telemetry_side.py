"""One suite in a process of its own, which says how much CPU it has used: half of benchmarks/telemetry.py.

    python -m benchmarks.streaming.telemetry_side UPSTREAM_URL EXPORTER FILE

Prints its port. Then each line of its input begins or ends a round, by turns; the end is answered with the seconds of
CPU since the beginning, all that telemetry had to export included.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import uvloop
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

from services.chassis.telemetry import Exporter, Telemetry, TelemetrySettings, open_telemetry
from tests.support.platform import test_platform
from tests.support.suite import suite

SERVICES = ("approval", "retrieval", "orchestrator")
# Exports happen at the end of rounds and never in between.
NEVER = 86_400.0


async def serve(upstream: str, exporter: Exporter, file: Path) -> None:
    """Serve until the input ends."""
    telemetry = open_telemetry("bench", "0", TelemetrySettings(exporter=exporter, file=file, interval=NEVER))
    platform = test_platform(telemetry=telemetry)
    # A busy machine must not cost a lease.
    async with suite(model=upstream, platform=platform, services=SERVICES, PROCTOR_ORCHESTRATOR_LEASE="60") as running:
        print(urlsplit(running.base_url).port, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            gc.collect()
            begun = time.process_time()
            print("begun", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            await asyncio.to_thread(flush, telemetry)
            print(time.process_time() - begun, flush=True)
    await telemetry.shutdown()


def flush(telemetry: Telemetry) -> None:
    """Export whatever waits to be exported."""
    for provider in (telemetry.tracer_provider, telemetry.meter_provider):
        if isinstance(provider, TracerProvider | MeterProvider) and not provider.force_flush():
            raise RuntimeError("telemetry could not be exported in time")


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], Exporter(sys.argv[2]), Path(sys.argv[3])))
