"""Control groups, version 1, version 2 or none: one group per job that counts and caps all its processes."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_V1_CONTROLLERS = ("memory", "pids", "cpuacct")
_V2_CONTROLLERS = ("memory", "pids", "cpu")


class Group(Protocol):
    """The group of one job."""

    def add(self, pid: int) -> None:
        """Move a process in; what it forks later follows."""

    def limit(self, *, memory: int, pids: int) -> None:
        """Set the caps, in bytes and processes."""

    def cpu(self) -> float:
        """Return seconds of CPU used so far by all that ever was in the group."""

    def peak_memory(self) -> int:
        """Return the highest memory so far, in bytes; 0 when unknown."""

    def memory_kills(self) -> int:
        """Return how many processes the kernel killed for memory."""

    def kill(self) -> None:
        """Kill every process in the group."""

    def remove(self) -> bool:
        """Remove the group; False when processes are still dying in it."""


class Hierarchy(Protocol):
    """Where groups are made. `version` is v1, v2 or none."""

    version: str

    def create(self, name: str) -> Group | None: ...

    def reap(self) -> int:
        """Kill and remove groups that an earlier supervisor of the same state directory left; return how many."""


class NoCgroups:
    """No usable control groups: limits are held by rlimits and the watchdog."""

    version = "none"

    def create(self, name: str) -> Group | None:
        return None

    def reap(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class _Directories:
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
        return all([_remove(directory) for directory in self.distinct()])


class GroupV1:
    """A job's three directories under version 1."""

    def __init__(self, directories: _Directories) -> None:
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


class HierarchyV1:
    """Version 1: the same group name under each controller."""

    version = "v1"

    def __init__(self, parents: dict[str, Path], prefix: str) -> None:
        self._parents = parents
        self._prefix = prefix

    def create(self, name: str) -> Group | None:
        paths = {controller: parent / (self._prefix + name) for controller, parent in self._parents.items()}
        for path in paths.values():
            path.mkdir(exist_ok=True)
        return GroupV1(_Directories(paths["memory"], paths["pids"], paths["cpuacct"]))

    def reap(self) -> int:
        return sum(_reap(parent, self._prefix) for parent in self._parents.values())


class HierarchyV2:
    """Version 2: one unified tree."""

    version = "v2"

    def __init__(self, parent: Path, prefix: str) -> None:
        self._parent = parent
        self._prefix = prefix

    def create(self, name: str) -> Group | None:
        path = self._parent / (self._prefix + name)
        path.mkdir(exist_ok=True)
        return GroupV2(path)

    def reap(self) -> int:
        return _reap(self._parent, self._prefix)


def detect(prefix: str, mode: str = "auto", mounts: str = "/proc/self/mounts", own: str = "/proc/self/cgroup") -> Hierarchy:
    """Return the hierarchy this process may use, trying version 2, then 1; `mode` forces v1, v2 or none."""
    points = _mount_points(Path(mounts).read_text())
    groups = _own_groups(Path(own).read_text())
    if mode in ("auto", "v2") and (parent := _v2_parent(points, groups)) is not None:
        return HierarchyV2(parent, prefix)
    if mode in ("auto", "v1") and (parents := _v1_parents(points, groups)) is not None:
        return HierarchyV1(parents, prefix)
    return NoCgroups()


def _mount_points(text: str) -> dict[str, Path]:
    """Return mount points by controller; version 2's is under ""."""
    points: dict[str, Path] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[2] == "cgroup2":
            points.setdefault("", Path(fields[1]))
        elif len(fields) > 3 and fields[2] == "cgroup":
            for option in fields[3].split(","):
                points.setdefault(option, Path(fields[1]))
    return points


def _own_groups(text: str) -> dict[str, str]:
    """Return this process's group by controller; version 2's is under ""."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path.lstrip("/")
    return groups


def _v1_parents(points: dict[str, Path], groups: dict[str, str]) -> dict[str, Path] | None:
    parents = {}
    for controller in _V1_CONTROLLERS:
        if controller not in points:
            return None
        parent = points[controller] / groups.get(controller, "")
        if not parent.is_dir():  # a container sees its own group as the root
            parent = points[controller]
        if not os.access(parent, os.W_OK):
            return None
        parents[controller] = parent
    return parents


def _v2_parent(points: dict[str, Path], groups: dict[str, str]) -> Path | None:
    """Return a directory whose children have the controllers, moving ourselves into a leaf when that is needed.

    Version 2 forbids processes beside groups that have controllers.
    """
    if "" not in points:
        return None
    parent = points[""] / groups.get("", "")
    if not parent.is_dir():
        parent = points[""]
    available = _text(parent / "cgroup.controllers").split()
    if not all(controller in available for controller in _V2_CONTROLLERS) or not os.access(parent, os.W_OK):
        return None
    enable = " ".join(f"+{controller}" for controller in _V2_CONTROLLERS)
    try:
        if not set(_V2_CONTROLLERS) <= set(_text(parent / "cgroup.subtree_control").split()):
            leaf = parent / "proctor-sandboxd"
            leaf.mkdir(exist_ok=True)
            for pid in _text(parent / "cgroup.procs").split():
                (leaf / "cgroup.procs").write_text(pid)
            (parent / "cgroup.subtree_control").write_text(enable)
    except OSError:
        return None
    return parent


def _reap(parent: Path, prefix: str) -> int:
    orphans = [path for path in parent.iterdir() if path.is_dir() and path.name.startswith(prefix)]
    for path in orphans:
        for _ in range(200):
            _kill_all(path)
            if _remove(path):
                break
            signal.sigtimedwait([], 0.005)
    return len(orphans)


def _kill_all(directory: Path) -> None:
    for pid in _text(directory / "cgroup.procs").split():
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


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = _text(path).strip()
    return int(text) if text.isdigit() else 0


def _keyed(path: Path, key: str) -> int:
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0
