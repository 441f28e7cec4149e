"""What a job is asked to do, and what came of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.sandbox.sandboxd.config import Bounds

# The processes of a job that are not the code's: its init, and the one that unshared.
OWN_PROCESSES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of code to run. `files` pairs names with descriptors of sealed memory, which the task owns."""

    key: str
    code: int
    files: Sequence[tuple[str, int]]
    wall: float
    cpu: float
    memory: int
    pids: int
    session: bool = False

    def close(self) -> None:
        for fd in (self.code, *(fd for _, fd in self.files)):
            os.close(fd)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How a task ended. `files` are open descriptors that the receiver owns, with their checked names and sizes."""

    status: str
    exit_code: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    peak_memory: int = 0
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    alive: bool = False
    detail: str = ""
    files: list[tuple[str, int, int]] = field(default_factory=list)
    dropped: list[tuple[str, str]] = field(default_factory=list)


def rlimits(task: Task, bounds: Bounds, data_before: int, *, count_processes: bool) -> dict[str, int]:
    """Return the limits the interpreter sets on itself; `data_before` bytes are mapped before the code runs.

    `count_processes` is False where jobs share a user, whose processes RLIMIT_NPROC would count together.
    """
    limits = {
        # RLIMIT_DATA makes a MemoryError that can be read; RLIMIT_AS would count mapped files too.
        "RLIMIT_DATA": task.memory + data_before,
        "RLIMIT_CPU": int(task.cpu) + 1,
        "RLIMIT_FSIZE": bounds.file_bytes,
        "RLIMIT_NOFILE": bounds.open_files,
        "RLIMIT_STACK": bounds.stack_bytes,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
    if count_processes:
        limits["RLIMIT_NPROC"] = task.pids + OWN_PROCESSES
    return limits
