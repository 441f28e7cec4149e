"""Huge pages: which memory is moved, and that it holds the same afterwards."""

from __future__ import annotations

import subprocess
import sys

from services.chassis.huge_pages import collapse, whole_pages

MIB = 1024 * 1024
MAPS = """\
55d0c0000000-55d0c0500000 r-xp 00000000 08:01 131 /usr/bin/python3.11
55d0c1f00000-55d0c2500000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
7f0000500000-7f0000600000 rw-p 00000000 00:00 0
7f0000800000-7f0000c00000 r--p 00000000 00:00 0
7f0001000000-7f0001400000 rw-s 00000000 00:00 0
7f0002000000-7f0002400000 rw-p 00000000 08:01 77 /srv/data.bin
7f0003000000-7f0003400000 rw-p 00000000 00:00 0 [anon:glibc]
7ffc00000000-7ffc00800000 rw-p 00000000 00:00 0 [stack]
"""

# Fills the heap, moves it, and tells how much was moved, how much the kernel says is in huge pages, and whether all is
# as it was.
PROGRAM = """
from services.chassis.huge_pages import gather_heap

def huge():
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("AnonHugePages"))

kept = [bytes([number % 256]) * 200 for number in range(200_000)]
moved = gather_heap()
print(moved, huge(), all(one == bytes([number % 256]) * 200 for number, one in enumerate(kept)))
"""


def test_only_whole_pages_of_private_writable_memory_are_moved() -> None:
    assert list(whole_pages(MAPS.splitlines(), 2 * MIB)) == [
        0x55D0C2000000,
        0x55D0C2200000,
        0x7F0000000000,
        0x7F0000200000,
    ]
    # Half of a huge page lies outside.
    assert list(whole_pages(MAPS.splitlines(), 8 * MIB)) == []


def test_pages_that_cannot_be_moved_keep_no_other() -> None:
    asked: list[int] = []

    def move(page: int) -> bool:
        asked.append(page)
        return page != 2

    assert collapse([1, 2, 3], 2 * MIB, move) == 4 * MIB
    assert asked == [1, 2, 3]


def test_a_moved_heap_holds_what_it_held() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    moved, huge, same = done.stdout.split()
    assert same == "True"
    # Kernels before 6.1 move nothing, and others leave all where it is when their administrator says so.
    assert int(huge) >= int(moved)
