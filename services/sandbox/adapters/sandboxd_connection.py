"""The wire to one supervisor process: started by exec, spoken to over a socket pair, gone when either side is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import services
from services.sandbox.domain import Check, Isolation
from services.sandbox.inside import frames
from services.sandbox.sandboxd.config import Config


class Connection:
    """One supervisor: its process, its socket, and who waits for its frames."""

    def __init__(self, config: Config) -> None:
        self.waiting: dict[str, asyncio.Queue[frames.Frame | None]] = {}
        self.isolation: Isolation | None = None
        self.parked = 0
        self.closed = asyncio.Event()
        self.changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._outgoing: deque[tuple[bytes, list[int]]] = deque()
        self._sock, theirs = frames.pair()
        with theirs:
            self.process = _start(theirs.fileno())
        frames.send(self._sock, config.to_json())
        self._sock.settimeout(0)
        self._loop.add_reader(self._sock, self._read)

    def send(self, header: dict[str, Any], fds: list[int]) -> None:
        """Send a frame when the socket takes it; owns `fds`."""
        self._outgoing.append((frames.encode(header), fds))
        self._flush()

    def close(self) -> None:
        """Hang up: the supervisor then kills every sandbox and ends."""
        if self.closed.is_set():
            return
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        while self._outgoing:
            _close_all(self._outgoing.popleft()[1])
        self.closed.set()
        self.changed.set()
        for queue in self.waiting.values():
            queue.put_nowait(None)

    def _flush(self) -> None:
        if self.closed.is_set():
            while self._outgoing:
                _close_all(self._outgoing.popleft()[1])
            return
        while self._outgoing:
            data, fds = self._outgoing[0]
            try:
                frames.send_encoded(self._sock, data, fds)
            except BlockingIOError:
                self._loop.add_writer(self._sock, self._flush)
                return
            except frames.ChannelClosed:
                self.close()
                return
            self._outgoing.popleft()
            _close_all(fds)
        self._loop.remove_writer(self._sock)

    def _read(self) -> None:
        for _ in range(64):
            try:
                frame = frames.receive(self._sock)
            except BlockingIOError:
                return
            except frames.ChannelClosed:
                self.close()
                return
            self._dispatch(frame)

    def _dispatch(self, frame: frames.Frame) -> None:
        event = frame.header["event"]
        if event == "isolation":
            self.isolation = _isolation(frame.header)
            self.changed.set()
            return
        if event == "pool":
            self.parked = int(frame.header["parked"])
            return
        queue = self.waiting.get(frame.header.get("key", ""))
        if queue is None:
            frame.close()
        else:
            queue.put_nowait(frame)

    async def reap(self) -> None:
        """Collect an ended supervisor; one that does not end is killed, and the kernel takes its sandboxes with it."""
        try:
            await asyncio.to_thread(self.process.wait, 5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)


def _start(fd: int) -> subprocess.Popen[bytes]:
    root = Path(next(iter(services.__path__))).parent
    return subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "services.sandbox.sandboxd", str(fd)],
        pass_fds=[fd],
        stdin=subprocess.DEVNULL,
        cwd="/",
        # Nothing of the service's environment, least of all its secrets.
        env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(root)},
        start_new_session=True,
    )


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def _isolation(header: dict[str, Any]) -> Isolation:
    return Isolation(
        safe=header["safe"],
        backend=header["backend"],
        cgroup=header["cgroup"],
        checks=[Check(**check) for check in header["checks"]],
        python_version=header["python"],
        packages=header["packages"],
    )
