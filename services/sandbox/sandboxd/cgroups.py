"""Control groups, version 1, version 2 or none: one group per job that counts and caps all its processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from services.sandbox.sandboxd.groups import Directories, GroupV1, GroupV2, reap, text_of

_V1_CONTROLLERS = ("memory", "pids", "cpuacct")
_V2_CONTROLLERS = ("memory", "pids", "cpu")
_LEAF = "proctor-sandboxd"


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
        return GroupV1(Directories(paths["memory"], paths["pids"], paths["cpuacct"]))

    def reap(self) -> int:
        return sum(reap(parent, self._prefix) for parent in self._parents.values())


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
        return reap(self._parent, self._prefix)


def detect(
    prefix: str, mode: str = "auto", mounts: str = "/proc/self/mounts", own: str = "/proc/self/cgroup"
) -> Hierarchy:
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
    if parent.name == _LEAF:  # a supervisor before us moved our service there
        parent = parent.parent
    available = text_of(parent / "cgroup.controllers").split()
    if not all(controller in available for controller in _V2_CONTROLLERS) or not os.access(parent, os.W_OK):
        return None
    enable = " ".join(f"+{controller}" for controller in _V2_CONTROLLERS)
    try:
        if not set(_V2_CONTROLLERS) <= set(text_of(parent / "cgroup.subtree_control").split()):
            leaf = parent / _LEAF
            leaf.mkdir(exist_ok=True)
            for pid in text_of(parent / "cgroup.procs").split():
                (leaf / "cgroup.procs").write_text(pid)
            (parent / "cgroup.subtree_control").write_text(enable)
    except OSError:
        return None
    return parent
