"""Streaming through gateway and orchestrator, journal on, beside the stock `openai` client on the same upstream.

    python benchmarks/stream.py [--quick]

The suite's whole process tree shares one core; the scripted model and this client have the other. Both sides stream
200 tokens in the same run, so the ratios mean something on any machine; absolute figures only on an idle one. Other
products under the same measurement: `make bench-peers`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.streaming.measure import measure
from benchmarks.streaming.processes import Direct, start_upstream, stay_on
from benchmarks.streaming.suite import proctor


async def main(*, quick: bool) -> None:
    stay_on(core=1)
    upstream, upstream_port = start_upstream(core=1)
    direct = Direct(upstream_port, core=0)
    try:
        with proctor(upstream_port, core=0) as target:
            report = await measure(target, direct, upstream_port, quick=quick)
    finally:
        direct.stop()
        upstream.kill()
        upstream.wait()
    if report.failures:
        sys.exit("; ".join(report.failures))


if __name__ == "__main__":
    uvloop.run(main(quick="--quick" in sys.argv[1:]))
