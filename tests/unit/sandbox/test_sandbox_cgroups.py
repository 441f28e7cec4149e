"""Control groups on directories that look like the kernel's: which version is used, what is written, what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.sandbox.sandboxd import cgroups


def described(tmp_path: Path, mounts: str, own: str) -> tuple[str, str]:
    (tmp_path / "mounts").write_text(mounts)
    (tmp_path / "own").write_text(own)
    return str(tmp_path / "mounts"), str(tmp_path / "own")


@pytest.fixture
def v2(tmp_path: Path) -> tuple[Path, tuple[str, str]]:
    root = tmp_path / "cgroup"
    unit = root / "system.slice" / "proctor.service"
    unit.mkdir(parents=True)
    (unit / "cgroup.controllers").write_text("cpu io memory pids\n")
    (unit / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (unit / "cgroup.procs").write_text("")
    return unit, described(tmp_path, f"cgroup2 {root} cgroup2 rw 0 0\n", "0::/system.slice/proctor.service\n")


@pytest.fixture
def v1(tmp_path: Path) -> tuple[Path, tuple[str, str]]:
    root = tmp_path / "cgroup"
    lines, own = "", ""
    for number, controller in enumerate(("memory", "pids", "cpuacct"), 1):
        (root / controller / "own").mkdir(parents=True)
        lines += f"cgroup {root / controller} cgroup rw,{controller} 0 0\n"
        own += f"{number}:{controller}:/own\n"
    return root, described(tmp_path, lines, own)


def test_version_2_is_found_and_its_files_are_written(v2: tuple[Path, tuple[str, str]]) -> None:
    unit, (mounts, own) = v2
    hierarchy = cgroups.detect("proctor-x-", "auto", mounts, own)
    assert hierarchy.version == "v2"
    group = hierarchy.create("1")
    assert group is not None
    at = unit / "proctor-x-1"
    group.limit(memory=1000, pids=7)
    group.add(42)
    assert (at / "memory.max").read_text() == "1000"
    assert (at / "memory.swap.max").read_text() == "0"
    assert (at / "pids.max").read_text() == "7"
    assert (at / "cgroup.procs").read_text() == "42"


def test_version_2_is_read(v2: tuple[Path, tuple[str, str]]) -> None:
    unit, (mounts, own) = v2
    group = cgroups.detect("p-", "auto", mounts, own).create("1")
    assert group is not None
    at = unit / "p-1"
    assert (group.cpu(), group.peak_memory(), group.memory_kills()) == (0.0, 0, 0)
    (at / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (at / "memory.peak").write_text("4096\n")
    (at / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert (group.cpu(), group.peak_memory(), group.memory_kills()) == (1.5, 4096, 2)
    group.kill()
    assert (at / "cgroup.kill").read_text() == "1"


def test_version_2_makes_room_for_its_children(v2: tuple[Path, tuple[str, str]]) -> None:
    unit, (mounts, own) = v2
    (unit / "cgroup.subtree_control").write_text("")
    (unit / "cgroup.procs").write_text("11\n")
    assert cgroups.detect("p-", "auto", mounts, own).version == "v2"
    assert (unit / "proctor-sandboxd" / "cgroup.procs").read_text() == "11"
    assert (unit / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"


def test_a_second_supervisor_uses_the_group_above_the_leaf(v2: tuple[Path, tuple[str, str]]) -> None:
    unit, (mounts, own) = v2
    (unit / "proctor-sandboxd").mkdir()
    Path(own).write_text("0::/system.slice/proctor.service/proctor-sandboxd\n")
    cgroups.detect("p-", "auto", mounts, own).create("1")
    assert (unit / "p-1").is_dir()


def test_version_2_without_the_controllers_is_no_use(v2: tuple[Path, tuple[str, str]]) -> None:
    unit, (mounts, own) = v2
    (unit / "cgroup.controllers").write_text("pids\n")
    assert cgroups.detect("p-", "auto", mounts, own).version == "none"


def test_version_1_is_found_written_and_read(v1: tuple[Path, tuple[str, str]]) -> None:
    root, (mounts, own) = v1
    hierarchy = cgroups.detect("p-", "auto", mounts, own)
    assert hierarchy.version == "v1"
    group = hierarchy.create("1")
    assert group is not None
    group.limit(memory=1000, pids=7)
    group.add(42)
    for controller in ("memory", "pids", "cpuacct"):
        assert (root / controller / "own" / "p-1" / "cgroup.procs").read_text() == "42"
    memory = root / "memory" / "own" / "p-1"
    assert (memory / "memory.limit_in_bytes").read_text() == "1000"
    assert (root / "pids" / "own" / "p-1" / "pids.max").read_text() == "7"
    (memory / "memory.max_usage_in_bytes").write_text("77\n")
    (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (root / "cpuacct" / "own" / "p-1" / "cpuacct.usage").write_text("2500000000\n")
    assert (group.cpu(), group.peak_memory(), group.memory_kills()) == (2.5, 77, 1)


def test_version_1_without_one_controller_is_no_use(v1: tuple[Path, tuple[str, str]]) -> None:
    _, (mounts, own) = v1
    Path(mounts).write_text("".join(Path(mounts).read_text().splitlines(keepends=True)[:2]))
    assert cgroups.detect("p-", "auto", mounts, own).version == "none"


def test_a_version_can_be_forced(v1: tuple[Path, tuple[str, str]]) -> None:
    _, (mounts, own) = v1
    assert cgroups.detect("p-", "v2", mounts, own).version == "none"
    assert cgroups.detect("p-", "none", mounts, own).version == "none"
    assert cgroups.detect("p-", "v1", mounts, own).version == "v1"


def test_only_groups_of_the_same_prefix_are_reaped(v1: tuple[Path, tuple[str, str]]) -> None:
    root, (mounts, own) = v1
    for name in ("mine-1", "mine-2", "other-1"):
        (root / "memory" / "own" / name).mkdir()
    assert cgroups.detect("mine-", "auto", mounts, own).reap() == 2
    assert sorted(path.name for path in (root / "memory" / "own").iterdir()) == ["other-1"]


def test_removing_twice_is_fine_and_a_full_group_waits(v2: tuple[Path, tuple[str, str]]) -> None:
    unit, (mounts, own) = v2
    group = cgroups.detect("p-", "auto", mounts, own).create("1")
    assert group is not None
    (unit / "p-1" / "busy").touch()
    assert not group.remove()
    (unit / "p-1" / "busy").unlink()
    assert group.remove()
    assert group.remove()
