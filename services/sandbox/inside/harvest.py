"""Collects the files that code left in the workspace, as open descriptors. Never follows a link, never blocks."""

from __future__ import annotations

import os
import stat

from . import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    # What a file looked like when it was last handed out: inode, size, modification time.
    Fingerprint = tuple[int, int, int]

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_DROPPED = 32


class Bounds:
    """How much may be taken."""

    def __init__(self, *, files: int, file_bytes: int, total_bytes: int) -> None:
        self.files = files
        self.file_bytes = file_bytes
        self.total_bytes = total_bytes


class Harvest:
    """What was found: names beside their open descriptors, and what was left with the reason."""

    def __init__(self) -> None:
        self.files: list[tuple[str, int]] = []
        self.dropped: list[tuple[str, str]] = []
        self.truncated = False
        self.total = 0

    def drop(self, name: str, reason: str) -> None:
        if len(self.dropped) < _MAX_DROPPED:
            self.dropped.append((names.display(name), reason))

    def close(self) -> None:
        for _, fd in self.files:
            os.close(fd)


def collect(root: str, seen: dict[str, Fingerprint], bounds: Bounds) -> Harvest:
    """Return the files under `root` that are new or changed since `seen`, which is brought up to date."""
    harvest = Harvest()
    try:
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return harvest
    _walk(top, "", 1, harvest, seen, bounds)
    return harvest


def fingerprint(status: os.stat_result) -> Fingerprint:
    """Return what tells one state of a file from the next."""
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _walk(folder: int, prefix: str, depth: int, harvest: Harvest, seen: dict[str, Fingerprint], bounds: Bounds) -> None:
    """Visit one open folder, files before sub-folders, and close it."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(((e.name, e.is_dir(follow_symlinks=False)) for e in entries), key=lambda e: (e[1], e[0]))
        for name, is_folder in found:
            path = prefix + name
            if not is_folder:
                _take(folder, name, path, harvest, seen, bounds)
            elif name == "__pycache__":
                continue
            elif depth >= names.MAX_DEPTH:
                harvest.drop(path, f"it lies deeper than {names.MAX_DEPTH} folders")
            else:
                _descend(folder, name, path, depth, harvest, seen, bounds)
    finally:
        os.close(folder)


def _descend(
    folder: int,
    name: str,
    path: str,
    depth: int,
    harvest: Harvest,
    seen: dict[str, Fingerprint],
    bounds: Bounds,
) -> None:
    try:
        inner = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=folder)
    except OSError as error:
        harvest.drop(path, f"it cannot be opened: {error.strerror}")
        return
    _walk(inner, path + "/", depth + 1, harvest, seen, bounds)


def _take(folder: int, name: str, path: str, harvest: Harvest, seen: dict[str, Fingerprint], bounds: Bounds) -> None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return
    mark = fingerprint(status)
    if seen.get(path) == mark:
        return
    seen[path] = mark
    reason = _objection(path, status, harvest, bounds)
    if reason:
        harvest.drop(path, reason)
        return
    if len(harvest.files) >= bounds.files:
        harvest.truncated = True
        harvest.drop(path, f"there are more than {bounds.files} files")
        return
    try:
        fd = os.open(name, _OPEN, dir_fd=folder)
    except OSError as error:
        harvest.drop(path, f"it cannot be opened: {error.strerror}")
        return
    harvest.files.append((path, fd))
    harvest.total += status.st_size


def _objection(path: str, status: os.stat_result, harvest: Harvest, bounds: Bounds) -> str:
    if stat.S_ISLNK(status.st_mode):
        return "it is a link"
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_size > bounds.file_bytes:
        return f"it is larger than {bounds.file_bytes} bytes"
    if harvest.total + status.st_size > bounds.total_bytes:
        return f"all files together are larger than {bounds.total_bytes} bytes"
    return names.rejection(path)
