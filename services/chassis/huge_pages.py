"""Huge pages for what a start has loaded: the code and data of a request lie in it everywhere, a little on each page.

Whenever the processor does not know where a page lies, it looks through four levels of tables, in a virtual machine at
each level through four more. In pages of 2 MiB it knows five hundred times as much memory. Nothing else changes: the
same bytes stay at the same addresses.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

# Linux 6.1 and later, from uapi/asm-generic/mman-common.h: put the pages of a range into huge ones now.
MADV_COLLAPSE = 25
_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
# Address range, protection and inode; only memory of the process's own has the inode 0.
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (....) \S+ \S+ (\d+)\s*(\S*)")


def gather_heap() -> int:
    """Move this process's heap into huge pages as far as the kernel can; return how many bytes it moved.

    It takes some milliseconds a page. Nothing is done where the system's administrator switched transparent huge pages
    off (`never`), or on other systems than Linux.
    """
    if sys.platform != "linux":
        return 0
    try:
        enabled = (_SETTINGS / "enabled").read_text()
        size = int((_SETTINGS / "hpage_pmd_size").read_text())
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return 0
    if "[never]" in enabled:
        return 0
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return collapse(whole_pages(maps.splitlines(), size), size, lambda at: madvise(at, size, MADV_COLLAPSE) == 0)


def whole_pages(maps: Iterable[str], size: int) -> Iterator[int]:
    """Yield the addresses of all pages of `size` bytes that lie whole in private, writable memory of the process's own.

    `maps` are lines as in /proc/PID/maps; see proc(5). Stacks are left out: most of them is never used.
    """
    for line in maps:
        mapping = _MAPPING.match(line)
        if mapping is None:
            continue
        start, stop, protection, inode, name = mapping.groups()
        if inode == "0" and protection.startswith("rw") and protection.endswith("p") and name in ("", "[heap]"):
            yield from range(-(-int(start, 16) // size) * size, int(stop, 16) // size * size, size)


def collapse(pages: Iterable[int], size: int, move: Callable[[int], bool]) -> int:
    """Move page by page, so that threads which allocate wait for one at most; return the bytes of those that moved."""
    return sum(size for page in pages if move(page))
