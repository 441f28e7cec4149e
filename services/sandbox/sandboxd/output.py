"""Reads a job's output pipe: keeps the first bytes, counts the rest, never lets the writer block for long."""

from __future__ import annotations

import os
from collections.abc import Callable

from services.sandbox.sandboxd.loop import Loop

CHUNK = 64 * 1024


class Drain:
    """One output stream. `keep` bytes are passed on; what follows is read and thrown away."""

    def __init__(self, loop: Loop, fd: int, keep: int, emit: Callable[[bytes], None]) -> None:
        self.keep = keep
        self.total = 0
        self._loop = loop
        self._fd = fd
        self._emit = emit
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    @property
    def truncated(self) -> bool:
        """Whether bytes were thrown away."""
        return self.total > self.keep

    def reset(self) -> None:
        """Begin a new execution."""
        self.total = 0

    def finish(self) -> None:
        """Read what is already in the pipe; bounded, because a leftover process may still be writing."""
        for _ in range(64):
            if not self._read():
                return

    def close(self) -> None:
        """Stop reading."""
        if self._fd >= 0:
            self._loop.remove(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> bool:
        """Read one piece; return whether there was one."""
        if self._fd < 0:
            return False
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        room = self.keep - self.total
        self.total += len(data)
        if room > 0:
            self._emit(data[:room])
        return True
