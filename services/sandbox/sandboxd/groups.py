"""One job's control group, version 1 or 2: plain files under a directory."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories of one job: a single one (v2), or one per controller (v1)."""

    memory: Path
    pids: Path
    cpu: Path

    def distinct(self) -> list[Path]:
        return list(dict.fromkeys((self.memory, self.pids, self.cpu)))

    def add(self, pid: int) -> None:
        for directory in self.distinct():
            (directory / "cgroup.procs").write_text(str(pid))

    def kill(self) -> None:
        for directory in self.distinct():
            _kill_all(directory)

    def remove(self) -> bool:
        left = [directory for directory in self.distinct() if not _remove(directory)]
        return not left


class GroupV1:
    """A job's three directories under version 1."""

    def __init__(self, directories: Directories) -> None:
        self._at = directories

    def add(self, pid: int) -> None:
        self._at.add(pid)

    def limit(self, *, memory: int, pids: int) -> None:
        # Swap counts too where it is accounted; it can never be below memory, so the order depends on the direction.
        swap, limit = self._at.memory / "memory.memsw.limit_in_bytes", self._at.memory / "memory.limit_in_bytes"
        for file in (limit, swap, limit):
            with contextlib.suppress(OSError):
                file.write_text(str(memory))
        (self._at.pids / "pids.max").write_text(str(pids))
        with contextlib.suppress(OSError):
            (self._at.memory / "memory.max_usage_in_bytes").write_text("0")

    def cpu(self) -> float:
        return _number(self._at.cpu / "cpuacct.usage") / 1e9

    def peak_memory(self) -> int:
        return _number(self._at.memory / "memory.max_usage_in_bytes")

    def memory_kills(self) -> int:
        return _keyed(self._at.memory / "memory.oom_control", "oom_kill")

    def kill(self) -> None:
        self._at.kill()

    def remove(self) -> bool:
        return self._at.remove()


class GroupV2:
    """A job's directory under version 2."""

    def __init__(self, directory: Path) -> None:
        self._at = directory

    def add(self, pid: int) -> None:
        (self._at / "cgroup.procs").write_text(str(pid))

    def limit(self, *, memory: int, pids: int) -> None:
        (self._at / "memory.max").write_text(str(memory))
        with contextlib.suppress(OSError):
            (self._at / "memory.swap.max").write_text("0")
        (self._at / "pids.max").write_text(str(pids))

    def cpu(self) -> float:
        return _keyed(self._at / "cpu.stat", "usage_usec") / 1e6

    def peak_memory(self) -> int:
        return _number(self._at / "memory.peak")

    def memory_kills(self) -> int:
        return _keyed(self._at / "memory.events", "oom_kill")

    def kill(self) -> None:
        try:
            (self._at / "cgroup.kill").write_text("1")
        except OSError:  # before Linux 5.14
            _kill_all(self._at)

    def remove(self) -> bool:
        return _remove(self._at)


def reap(parent: Path, prefix: str) -> int:
    """Kill and remove groups under `parent` whose name starts with `prefix`; return how many there were."""
    orphans = [path for path in parent.iterdir() if path.is_dir() and path.name.startswith(prefix)]
    for path in orphans:
        for _ in range(200):
            _kill_all(path)
            if _remove(path):
                break
            signal.sigtimedwait([], 0.005)
    return len(orphans)


def _kill_all(directory: Path) -> None:
    for pid in text_of(directory / "cgroup.procs").split():
        with contextlib.suppress(ProcessLookupError, ValueError):
            if int(pid) > 0:  # 0 is a process outside of our PID namespace
                os.kill(int(pid), signal.SIGKILL)


def _remove(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def text_of(path: Path) -> str:
    """Return what is in a file, "" when it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = text_of(path).strip()
    return int(text) if text.isdigit() else 0


def _keyed(path: Path, key: str) -> int:
    for line in text_of(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0
