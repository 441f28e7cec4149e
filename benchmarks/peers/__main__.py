"""The table of the README: Proctor and other products, each against the same scripted model in the same run.

    python -m benchmarks.peers [--quick] [NAME …]

Each peer is installed into an environment of its own under `.bench/` and runs with its whole process tree on one core.
Without names all are measured, Proctor first and last.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.catalogue import PEERS, peer
from benchmarks.streaming.measure import Report, Target, measure
from benchmarks.streaming.processes import Direct, start_upstream
from benchmarks.streaming.suite import proctor

COLUMNS = {
    "first token added, median / p95 ms": ("first token median", "first token p95", "{:.1f} / {:.1f}"),
    "tokens/s at 1 / 32 / 200": ("tokens/s 1", "tokens/s 32", "tokens/s 200", "{:,.0f} / {:,.0f} / {:,.0f}"),
    "CPU s per 1,000 tokens": ("cpu 32", "{:.3f}"),
    "paced streams": ("paced", "{:.0f}"),
    "tool loop added, ms": ("tool loop", "{:.1f}"),
}


@contextmanager
def running(name: str, upstream_port: int) -> Iterator[Target]:
    with proctor(upstream_port, core=0) if name == "proctor" else peer(name, upstream_port, core=0) as target:
        yield target


async def main(names: Sequence[str], *, quick: bool) -> None:
    upstream, upstream_port = start_upstream(core=1)
    direct = Direct(upstream_port, core=0)
    reports: list[tuple[str, Report]] = []
    try:
        for name in names:
            try:
                with running(name, upstream_port) as target:
                    reports.append((name, await measure(target, direct, upstream_port, quick=quick)))
            except SystemExit as error:
                # One that cannot be started, or loses tokens, has no figures; the others are measured all the same.
                print(f"{name}: {error}", flush=True)
    finally:
        direct.stop()
        upstream.kill()
        upstream.wait()
    print("\n| | " + " | ".join(COLUMNS) + " |\n" + "|---" * (len(COLUMNS) + 1) + "|")
    for name, report in reports:
        print(f"| {name} | " + " | ".join(_cell(report, *parts) for parts in COLUMNS.values()) + " |")


def _cell(report: Report, *parts: str) -> str:
    *keys, form = parts
    figures = [report.figures.get(key) for key in keys]
    return form.format(*figures) if None not in figures else "–"


if __name__ == "__main__":
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")] or ["proctor", *PEERS, "proctor"]
    uvloop.run(main(wanted, quick="--quick" in sys.argv[1:]))
