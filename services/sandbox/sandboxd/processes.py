"""Looks at a job's processes through /proc, for hosts without a cgroup."""

from __future__ import annotations

import os
from dataclasses import dataclass

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a tree of processes uses now: seconds of CPU (ended children included), bytes, processes."""

    cpu: float
    memory: int
    processes: int


def tree(root: int, *, at_most: int = 100_000) -> list[int]:
    """Return `root` and its descendants. In a PID namespace every orphan is a child of its first process."""
    found: list[int] = []
    queue = [root]
    while queue and len(found) < at_most:
        pid = queue.pop()
        found.append(pid)
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for task in tasks:
            queue.extend(int(child) for child in _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def usage(root: int, *, memory_limit: int) -> Usage:
    """Measure the tree under `root`.

    The cheap sum of resident sets counts shared pages once per process; only when that is above `memory_limit`
    is the exact but slow proportional share read.
    """
    pids = tree(root)
    memory = sum(_resident(pid) for pid in pids)
    if memory > memory_limit:
        memory = sum(_proportional(pid) for pid in pids)
    return Usage(cpu=sum(_cpu(pid) for pid in pids), memory=memory, processes=len(pids))


def data_bytes(pid: int) -> int:
    """Return the private memory mapped by `pid`, as RLIMIT_DATA counts it."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0


def _cpu(pid: int) -> float:
    # Fields after the command's closing parenthesis; 11 to 14 are utime, stime, cutime, cstime (proc(5)).
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(int(value) for value in fields[11:15]) / _TICKS


def _resident(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def _proportional(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return _resident(pid)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
