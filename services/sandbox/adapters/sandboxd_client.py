"""The jail as seen from the service: a supervisor process on the other end of a socket pair.

The service itself never forks: the supervisor is started by exec without running fork handlers, so it may be started
again while gRPC serves.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

from services.chassis.errors import Unavailable
from services.sandbox.adapters.sandboxd_connection import Connection
from services.sandbox.artifacts import CHUNK_BYTES
from services.sandbox.domain import (
    ArtifactChunk,
    Check,
    DroppedFile,
    Event,
    Finished,
    Isolation,
    Job,
    Output,
    Started,
    Status,
    Stream,
)
from services.sandbox.inside import frames
from services.sandbox.sandboxd.config import Config

log = logging.getLogger(__name__)

# Starting takes a second, the first time a few more: the fonts of the machine are listed then.
_READY_SECONDS = 150.0
_RESTART_DELAYS = (0.0, 0.2, 1.0, 5.0)
_LASTING_SECONDS = 10.0
# So many supervisors that died without a word mean that none will ever speak.
_HOPELESS = 3
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


class SandboxdJail:
    """`Jail` over a supervisor that is started again whenever it dies."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._connection: Connection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._broken: Isolation | None = None

    async def start(self) -> None:
        """Start the supervisor and keep one running."""
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """End the supervisor and with it every sandbox."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    @property
    def known_isolation(self) -> Isolation | None:
        """The newest proof, None while there is none."""
        if self._broken is not None:
            return self._broken
        return self._connection.isolation if self._connection else None

    @property
    def parked(self) -> int:
        """How many warm jobs wait for code."""
        return self._connection.parked if self._connection else 0

    @property
    def supervisor_pid(self) -> int:
        """The supervisor's process id, 0 when there is none."""
        return self._connection.process.pid if self._connection else 0

    async def isolation(self) -> Isolation:
        try:
            found = (await self._ready()).isolation
        except Unavailable:
            if self._broken is None:
                raise
            return self._broken
        assert found is not None
        return found

    async def run(self, key: str, job: Job) -> AsyncIterator[Event]:
        connection = await self._ready()
        queue: asyncio.Queue[frames.Frame | None] = asyncio.Queue()
        connection.waiting[key] = queue
        limits = job.limits
        header = {
            "order": "run",
            "key": key,
            "session": job.session_id,
            "files": [file.name for file in job.files],
            "wall": limits.wall,
            "cpu": limits.cpu,
            "memory": limits.memory_bytes,
            "pids": limits.pids,
        }
        try:
            connection.send(header, [_memory(part) for part in (job.code.encode(), *(f.content for f in job.files))])
            sequences = dict.fromkeys(Stream, 0)
            while (frame := await queue.get()) is not None:
                for event in _events(frame, sequences):
                    yield event
                    if isinstance(event, Finished):
                        return
            detail = "the sandbox's supervisor died"
            yield Finished(status=Status.SANDBOX_ERROR, detail=detail, state_lost=bool(job.session_id))
        finally:
            del connection.waiting[key]
            while not queue.empty():
                if (left := queue.get_nowait()) is not None:
                    left.close()

    async def cancel(self, key: str) -> None:
        if self._connection is not None:
            self._connection.send({"order": "cancel", "key": key}, [])

    async def open_session(self, session_id: str) -> None:
        connection = await self._ready()
        key = f"open/{session_id}"
        queue: asyncio.Queue[frames.Frame | None] = asyncio.Queue()
        connection.waiting[key] = queue
        try:
            connection.send({"order": "open", "key": key, "session": session_id}, [])
            frame = await queue.get()
        finally:
            del connection.waiting[key]
        if frame is None or frame.header["event"] != "opened":
            detail = frame.header.get("detail", "") if frame else "the supervisor died"
            raise Unavailable(f"no interpreter came up for the session: {detail}", retry_after=1.0)

    async def close_session(self, session_id: str) -> None:
        if self._connection is not None:
            self._connection.send({"order": "close", "session": session_id}, [])

    async def _ready(self) -> Connection:
        """Return a connection whose supervisor has proved its isolation, or found that it cannot."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while True:
                    await self._connected.wait()
                    connection = self._connection
                    if connection is not None and connection.isolation is not None:
                        return connection
                    if self._broken is not None:
                        raise Unavailable("the sandbox's supervisor does not start; see its log", retry_after=5.0)
                    if connection is not None:
                        await connection.changed.wait()
                    await asyncio.sleep(0)
        except TimeoutError:
            raise Unavailable("the sandbox's supervisor does not come up; see its log", retry_after=5.0) from None

    async def _keep(self) -> None:
        failures = 0
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(_RESTART_DELAYS[min(failures, len(_RESTART_DELAYS) - 1)])
                began = loop.time()
                self._connection = connection = Connection(self._config)
                self._connected.set()
                await connection.changed.wait()
                if connection.isolation is not None:
                    self._broken = None
                await connection.closed.wait()
                self._connected.clear()
                self._connection = None
                proved = connection.isolation is not None
                if not proved and failures + 1 >= _HOPELESS:
                    self._broken = _never_started(self._config)
                    self._connected.set()  # whoever waits learns that there is nothing to wait for
                await connection.reap()
                log.warning("the supervisor ended and is started again", extra={"event": "sandboxd.restarted"})
                # One that proved itself and was killed is replaced at once, unless it keeps dying young.
                young = loop.time() - began < _LASTING_SECONDS
                failures = failures + 1 if not proved else int(young)
        finally:
            if self._connection is not None:
                connection, self._connection = self._connection, None
                connection.close()
                await connection.reap()


def _memory(content: bytes) -> int:
    """Return a descriptor of sealed memory that holds `content`."""
    fd = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def _events(frame: frames.Frame, sequences: dict[Stream, int]) -> Iterator[Event]:
    header = frame.header
    try:
        match header["event"]:
            case "started":
                yield Started(warm=bool(header["warm"]), queued=float(header["queued"]))
            case "stdout" | "stderr" as name:
                stream = Stream(name)
                sequences[stream] += 1
                yield Output(stream=stream, sequence=sequences[stream], data=frame.payload)
            case "file":
                yield from _chunks(header["name"], frame.fds[0], int(header["size"]))
            case "finished":
                yield _finished(header)
    finally:
        frame.close()


def _chunks(name: str, fd: int, size: int) -> Iterator[ArtifactChunk]:
    """Read a file that foreign code may still be changing: at most `size` bytes, whatever it is now."""
    offset = 0
    while True:
        data = os.pread(fd, min(CHUNK_BYTES, size - offset), offset) if offset < size else b""
        offset += len(data)
        last = not data or offset >= size
        yield ArtifactChunk(name=name, data=data, last=last)
        if last:
            return


def _finished(header: dict[str, Any]) -> Finished:
    return Finished(
        status=Status(header["status"]),
        exit_code=header["exit"],
        cpu=header["cpu"],
        wall=header["wall"],
        peak_memory_bytes=header["peak"],
        stdout_truncated=header["stdout_truncated"],
        stderr_truncated=header["stderr_truncated"],
        dropped=tuple(DroppedFile(name=name, reason=reason) for name, reason in header["dropped"]),
        state_lost=header["state_lost"],
        detail=header["detail"],
    )


def _never_started(config: Config) -> Isolation:
    check = Check(
        name="supervisor_starts",
        passed=False,
        detail=f"{_HOPELESS} supervisors ended before they could prove anything",
        remedy="read the service's log (standard error) for the supervisor's last words, fix that, and restart",
    )
    return Isolation(safe=False, backend=config.backend, cgroup="none", checks=[check])
