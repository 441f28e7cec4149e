"""The process group with real processes: tiny ones that say when they are ready and how they end."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from services.cli.group import Group, Member, MemberFailed, StartTimeout

SERVE = """
import pathlib, signal, sys, time
name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
def end(*_):
    with (folder / "ended").open("a") as log:
        log.write(name + " ")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
(folder / name).touch()
while True:
    signal.pause()
"""


def member(folder: Path, name: str, code: str = SERVE) -> Member:
    async def healthy() -> bool:
        while not (folder / name).exists():
            await asyncio.sleep(0.01)
        return True

    command = [sys.executable, "-c", code, name, str(folder)]
    return Member(name=name, command=command, log=folder / f"{name}.log", healthy=healthy)


async def started(group: Group, *members: Member) -> None:
    for each in members:
        await group.spawn(each)
    for each in members:
        assert await group.healthy(each)


async def test_members_stop_in_the_reverse_of_their_order(tmp_path: Path) -> None:
    group = Group(os.environ, "abc")
    await started(group, *(member(tmp_path, name) for name in "bca"))
    await group.stop()
    assert (tmp_path / "ended").read_text().split() == ["c", "b", "a"]


async def test_the_first_failure_is_told_with_its_code_and_log(tmp_path: Path) -> None:
    group = Group(os.environ, "ad")
    await started(group, member(tmp_path, "a"))
    dies = "import pathlib,sys; pathlib.Path(sys.argv[2], sys.argv[1]).touch(); print('disk full'); sys.exit(7)"
    with pytest.raises(MemberFailed) as caught:
        await started(group, member(tmp_path, "d", dies))
        await group.wait()
    await group.stop()
    assert (caught.value.name, caught.value.code) == ("d", 7)
    assert "disk full" in caught.value.tail
    assert (tmp_path / "ended").read_text().split() == ["a"]


async def test_a_member_killed_by_a_signal_has_the_shells_code(tmp_path: Path) -> None:
    group = Group(os.environ, "k")
    kills = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(MemberFailed) as caught:
        await started(group, member(tmp_path, "k", kills))
    await group.stop()
    assert caught.value.code == 137


async def test_a_clean_end_of_what_should_serve_is_a_failure_too(tmp_path: Path) -> None:
    group = Group(os.environ, "q")
    with pytest.raises(MemberFailed) as caught:
        await started(group, member(tmp_path, "q", "pass"))
    await group.stop()
    assert caught.value.code == 1


async def test_a_member_that_never_gets_healthy_is_named(tmp_path: Path) -> None:
    group = Group(os.environ, ["z"], start_timeout=0.3)
    with pytest.raises(StartTimeout, match="z"):
        await started(group, member(tmp_path, "z", "import time; time.sleep(60)"))
    await group.stop()
