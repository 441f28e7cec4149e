"""The table of the README: Proctor and other products, each against the same scripted model in the same run.

    python -m benchmarks.peers [--quick] [NAME …]

Each peer is installed into an environment of its own under `.bench/` and runs with its whole process tree on one core.
Without names all are measured; Proctor is, first and last, with any of them. See README.md beside this file.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.catalogue import PEERS, peer
from benchmarks.streaming.measure import Report, Target, measure
from benchmarks.streaming.processes import Direct, start_upstream, stay_on
from benchmarks.streaming.suite import proctor


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: its figures of a report, how they are written, and the one that is compared."""

    title: str
    figures: tuple[str, ...]
    form: str
    compared: str


COLUMNS = (
    Column(
        "first token added, median / p95 ms", ("first token median", "first token p95"), "{:.1f}", "first token median"
    ),
    Column("tokens/s at 1 / 32 / 200 streams", ("tokens/s 1", "tokens/s 32", "tokens/s 200"), "{:,.0f}", "tokens/s 32"),
    Column("CPU s per 1,000 tokens at 32", ("cpu 32",), "{:.3f}", "cpu 32"),
    Column("streams kept at 20 ms a token", ("paced",), "{:.0f}", "paced"),
    Column("tool loop added, ms", ("tool loop",), "{:.1f}", "tool loop"),
)
MISSING = "–"


@contextmanager
def running(name: str, upstream_port: int) -> Iterator[Target]:
    with proctor(upstream_port, core=0) if name == "proctor" else peer(name, upstream_port, core=0) as target:
        yield target


async def main(names: Sequence[str], *, quick: bool) -> None:
    stay_on(core=1)
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
    print(table(reports))


def table(reports: Sequence[tuple[str, Report]]) -> str:
    """Return the table: what each server did and, in brackets, how many times what Proctor did in the same run."""
    ours = [report for name, report in reports if name == "proctor"]
    lines = ["", "| | " + " | ".join(column.title for column in COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, report in reports:
        cells = (_cell(report, column, [] if name == "proctor" else ours) for column in COLUMNS)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(report: Report, column: Column, ours: Sequence[Report]) -> str:
    figures = [report.figures.get(name) for name in column.figures]
    if not any(figure is not None for figure in figures):
        return MISSING
    cell = " / ".join(MISSING if figure is None else column.form.format(figure) for figure in figures)
    theirs = report.figures.get(column.compared)
    reference = [each.figures[column.compared] for each in ours if column.compared in each.figures]
    if theirs is None or not reference or statistics.mean(reference) <= 0:
        return cell
    return f"{cell} ({theirs / statistics.mean(reference):.2f}×)"


if __name__ == "__main__":
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")] or list(PEERS)
    # Twice, so that a machine that changes its mood in between shows.
    uvloop.run(main(["proctor", *wanted, "proctor"], quick="--quick" in sys.argv[1:]))
