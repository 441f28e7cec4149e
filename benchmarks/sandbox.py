"""Speed of the sandbox as ratios of one run: `python benchmarks/sandbox.py` (root, or PROCTOR_SANDBOX_ALLOW_NO_CGROUP).

Everything is measured through the jail that the service uses, against the same interpreter started plainly. The
targets are those of the sandbox's specification; a slower or busy machine changes both sides of a ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "protos" / "gen")]

from services.sandbox.domain import Output, Status  # noqa: E402
from services.sandbox.settings import Backend  # noqa: E402
from tests.support.process_table import descendants  # noqa: E402
from tests.support.sandbox import ENVIRONMENT, Runner, running_jail, short_folder, until_warm  # noqa: E402

FULL_IMPORT = "import numpy, pandas, matplotlib.pyplot"
PYTHON = str(ENVIRONMENT / "bin" / "python")
FORK_BOMB = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"


def median(values: list[float]) -> float:
    return statistics.median(values)


def plain(code: str, rounds: int) -> float:
    """Return seconds of a plain interpreter that runs `code`."""
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([PYTHON, "-I", "-c", code], check=True, env={"MPLBACKEND": "Agg", "OPENBLAS_NUM_THREADS": "1"})
        taken.append(time.perf_counter() - began)
    return median(taken)


async def jailed(runner: Runner, code: str) -> tuple[float, float]:
    """Return seconds to the first byte of output (the end, when there is none) and to the end."""
    from services.sandbox.domain import Finished, Job
    from services.sandbox.limits import DEFAULTS
    from tests.support.sandbox import ANN

    began = time.perf_counter()
    first = 0.0
    job = Job(execution_id="bench", owner=ANN, code=code, files=(), limits=DEFAULTS)
    async for event in runner.jail.run(f"bench{began}", job):
        if isinstance(event, Output) and not first:
            first = time.perf_counter() - began
        if isinstance(event, Finished) and event.status is not Status.OK:
            raise RuntimeError(f"{event.status}: {event.detail}")
    done = time.perf_counter() - began
    return first or done, done


async def repeated(
    rounds: int, measure: Callable[[], Awaitable[tuple[float, float]]], pause: float
) -> tuple[float, float]:
    firsts, dones = [], []
    for _ in range(rounds):
        first, done = await measure()
        firsts.append(first)
        dones.append(done)
        await asyncio.sleep(pause)  # so that the next job finds a parked one again
    return median(firsts), median(dones)


async def throughput(runner: Runner, seconds: float) -> float:
    """Return jobs with numpy per second, two at a time."""
    end = time.perf_counter() + seconds
    count = 0

    async def worker() -> None:
        nonlocal count
        while time.perf_counter() < end:
            result = await runner.run("import numpy; print(numpy.arange(3).sum())")
            assert result.status is Status.OK
            count += 1

    await asyncio.gather(worker(), worker())
    return count / seconds


def private_bytes(pid: int) -> int:
    total = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Private_Clean:", "Private_Dirty:")):
            total += int(line.split()[1]) * 1024
    return total


def parked_memory(runner: Runner) -> float:
    """Return the private bytes of one parked job: its init, its interpreter and the process that unshared."""
    family = descendants(runner.jail.supervisor_pid)
    names = {pid: len(descendants(pid)) for pid in family}
    outer = [pid for pid in family if names[pid] == 2]
    jobs = [[pid, *descendants(pid)] for pid in outer]
    return median([float(sum(private_bytes(pid) for pid in job)) for job in jobs]) if jobs else 0.0


async def warm_figures(rounds: int) -> dict[str, float]:
    with short_folder() as folder:
        async with running_jail(folder, Backend.WARM) as runner:
            figures: dict[str, float] = {}
            measure = lambda: jailed(runner, "print(1)")  # noqa: E731
            figures["parked_first"], figures["parked_done"] = await repeated(rounds, measure, 0.25)
            await asyncio.sleep(0.5)
            figures["parked_memory"] = parked_memory(runner)
            figures["warm_rate"] = await throughput(runner, 5.0)
            kills = [(await runner.run("while True: pass", wall=0.5)).finished.wall - 0.5 for _ in range(3)]
            figures["kill"] = median(kills)
            bombs = [(await runner.run(FORK_BOMB, wall=1.0, cpu=60)).finished.wall - 1.0 for _ in range(3)]
            figures["kill_bomb"] = median(bombs)
    with short_folder() as folder:
        async with running_jail(folder, Backend.WARM, parked=0) as runner:
            await until_warm(runner)
            measure = lambda: jailed(runner, "print(1)")  # noqa: E731
            figures["empty_first"], _ = await repeated(rounds, measure, 0.1)
    return figures


async def cold_figures(rounds: int) -> dict[str, float]:
    with short_folder() as folder:
        async with running_jail(folder, Backend.COLD) as runner:
            _, cold_pass = await repeated(rounds, lambda: jailed(runner, "pass"), 0.05)
            _, cold_full = await repeated(max(3, rounds // 3), lambda: jailed(runner, FULL_IMPORT), 0.05)
            return {"cold_pass": cold_pass, "cold_full": cold_full, "cold_rate": await throughput(runner, 5.0)}


def report(f: dict[str, float]) -> list[dict[str, Any]]:
    rows = [
        ("parked first byte / plain pass", f["parked_first"] / f["plain"], "<=", 0.5),
        ("parked done / plain pass", f["parked_done"] / f["plain"], "<=", 1.5),
        ("cold pass / plain pass", f["cold_pass"] / f["plain"], "<=", 6.0),
        ("cold / plain full import", f["cold_full"] / f["plain_full"], "<=", 1.3),
        ("cold full import / parked done", f["cold_full"] / f["parked_done"], ">=", 50.0),
        ("pool-empty first byte / plain pass", f["empty_first"] / f["plain"], "<=", 5.0),
        ("seconds from wall limit to end", f["kill"], "<=", 0.25),
        ("the same under a fork bomb", f["kill_bomb"], "<=", 1.0),
        ("warm / cold jobs per second with numpy", f["warm_rate"] / f["cold_rate"], ">=", 2.0),
        ("private MiB of a parked job", f["parked_memory"] / (1 << 20), "<=", 8.0),
    ]
    return [
        {"ratio": name, "value": round(value, 3), "target": f"{sign} {target:g}", "met": _met(value, sign, target)}
        for name, value, sign, target in rows
    ]


def _met(value: float, sign: str, target: float) -> bool:
    return value <= target if sign == "<=" else value >= target


async def measure(rounds: int) -> dict[str, float]:
    figures = {"plain": plain("pass", rounds), "plain_full": plain(FULL_IMPORT, max(3, rounds // 3))}
    figures |= await cold_figures(rounds)
    figures |= await warm_figures(rounds)
    # Again at the end, because a busy machine changes while we measure.
    figures["plain"] = median([figures["plain"], plain("pass", rounds)])
    figures["plain_full"] = median([figures["plain_full"], plain(FULL_IMPORT, max(3, rounds // 3))])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments.rounds))
    rows = report(figures)
    if arguments.json:
        print(json.dumps({"seconds": figures, "ratios": rows}, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:20} {value:12.4f}")
        for row in rows:
            print(f"{row['ratio']:42} {row['value']:10} {row['target']:>8}  {'met' if row['met'] else 'MISSED'}")
    if arguments.check and not all(row["met"] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
