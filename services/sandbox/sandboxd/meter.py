"""Counts what one execution uses beyond what its job had used before it, by control group or through /proc."""

from __future__ import annotations

from services.sandbox.sandboxd import processes
from services.sandbox.sandboxd.cgroups import Group
from services.sandbox.sandboxd.config import Bounds
from services.sandbox.sandboxd.task import OWN_PROCESSES, Task

# A group refuses a fork only after copying the address space; RLIMIT_NPROC refuses before and must come first.
_GROUP_MARGIN = 4
# RLIMIT_DATA should be met before the watchdog: its MemoryError tells the code more than a kill.
_WATCHDOG_SLACK = 32 << 20


class Meter:
    """The meter of one job; `begin` starts an execution."""

    def __init__(self, group: Group | None, bounds: Bounds) -> None:
        self._group = group
        self._bounds = bounds
        self._pid = 0
        self._cpu_before = 0.0
        self._kills_before = 0
        self._memory_before = 0
        self._peak = 0

    def join(self, pid: int) -> None:
        """Count the job whose first process is `pid`; call it before that forks anything."""
        self._pid = pid
        if self._group is not None:
            self._group.limit(memory=1 << 30, pids=16)
            self._group.add(pid)

    def begin(self, task: Task) -> None:
        """Set the caps of `task` and remember where counting starts."""
        self._peak = 0
        if self._group is not None:
            most = task.memory + self._bounds.disk_bytes
            self._group.limit(memory=most, pids=task.pids + OWN_PROCESSES + _GROUP_MARGIN)
            self._kills_before = self._group.memory_kills()
            self._cpu_before = self._group.cpu()
        else:
            # What the zygote imported is not the code's; a group does not count it either.
            usage = processes.usage(self._pid, memory_limit=0)
            self._memory_before, self._cpu_before = usage.memory, usage.cpu

    def exceeded(self, task: Task) -> str:
        """Return CPU or OOM when `task` is over that limit, else ""."""
        if self._group is not None:
            return "CPU" if self._group.cpu() - self._cpu_before > task.cpu else ""
        most = task.memory + _WATCHDOG_SLACK
        usage = processes.usage(self._pid, memory_limit=self._memory_before + most)
        used = usage.memory - self._memory_before
        self._peak = max(self._peak, used)
        if used > most:
            return "OOM"
        return "CPU" if usage.cpu - self._cpu_before > task.cpu else ""

    def cpu(self) -> float:
        """Return seconds of CPU since `begin`."""
        now = self._group.cpu() if self._group is not None else processes.usage(self._pid, memory_limit=1 << 62).cpu
        return max(0.0, now - self._cpu_before)

    def peak_memory(self) -> int:
        """Return the most memory so far, in bytes; 0 when unknown."""
        return self._group.peak_memory() if self._group is not None else self._peak

    def memory_killed(self) -> bool:
        """Return whether the kernel killed a process for memory since `begin`."""
        return self._group is not None and self._group.memory_kills() > self._kills_before
