"""Takes orders from the service, finds each a job, and reports what comes out."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import deque
from dataclasses import dataclass
from typing import Any

from services.sandbox.inside import frames
from services.sandbox.sandboxd.loop import Loop
from services.sandbox.sandboxd.output import CHUNK
from services.sandbox.sandboxd.pool import Pool
from services.sandbox.sandboxd.task import Outcome, Task
from services.sandbox.sandboxd.worker import Worker

# A job that does not come up in this time is given up.
_START_SECONDS = 20.0


@dataclass(slots=True)
class _Waiting:
    """A task, or a session to open, that waits for a job to park."""

    key: str
    since: float
    session: str
    task: Task | None
    worker: Worker | None = None


class Outbox:
    """Frames on their way to the service; never blocks the loop."""

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        self._loop = loop
        self._sock = sock
        self._queue: deque[tuple[bytes, list[int]]] = deque()

    def put(self, header: dict[str, Any], payload: bytes = b"", fds: list[int] | None = None) -> None:
        """Send a frame as soon as the socket takes it; the outbox closes `fds` after that."""
        self._queue.append((frames.encode(header, payload), fds or []))
        self._flush()

    def _flush(self) -> None:
        while self._queue:
            data, fds = self._queue[0]
            try:
                frames.send_encoded(self._sock, data, fds)
            except BlockingIOError:
                self._loop.add_writer(self._sock.fileno(), self._flush)
                return
            except frames.ChannelClosed:
                pass  # the reader notices and ends the supervisor
            self._queue.popleft()
            for fd in fds:
                os.close(fd)
        self._loop.remove_writer(self._sock.fileno())


class Supervisor:
    """One service's supervisor. `done` becomes true when the service is gone."""

    def __init__(self, loop: Loop, sock: socket.socket, isolation: dict[str, Any]) -> None:
        self.done = False
        self.pool: Pool
        self._loop = loop
        self._sock = sock
        self._outbox = Outbox(loop, sock)
        self._isolation = isolation
        self._waiting: list[_Waiting] = []
        self._running: dict[str, Worker] = {}
        self._sessions: dict[str, Worker] = {}
        self._parked = 0

    def serve(self, pool: Pool | None) -> None:
        """Answer orders until the service hangs up; without a pool every task is refused."""
        self._loop.add_reader(self._sock.fileno(), self._read)
        self._outbox.put({"event": "isolation", **self._isolation})
        if pool is not None:
            self.pool = pool
            pool.on_change = self._match
            self._loop.busy = lambda: bool(self._waiting) or pool.running()
            self._loop.every_tick(self._tick)
        while not self.done:
            self._loop.run_once()

    # Listener of the workers.

    def parked(self, worker: Worker) -> None:
        self._match()

    def output(self, worker: Worker, task: Task, stream: str, data: bytes) -> None:
        for start in range(0, len(data), CHUNK):
            self._outbox.put({"event": stream, "key": task.key}, data[start : start + CHUNK])

    def finished(self, worker: Worker, task: Task, outcome: Outcome) -> None:
        self._running.pop(task.key, None)
        for name, fd, size in outcome.files:
            self._outbox.put({"event": "file", "key": task.key, "name": name, "size": size}, fds=[fd])
        self._outbox.put({"event": "finished", "key": task.key, **_report(outcome, session=worker.session)})
        if not outcome.alive:
            self._forget(worker)
        elif not task.session:
            worker.kill()

    def lost(self, worker: Worker) -> None:
        for waiting in [w for w in self._waiting if w.worker is worker]:
            self._waiting.remove(waiting)
            self._refuse(waiting, worker.launcher.diagnostics() or "the sandbox ended before it was ready")
        self._forget(worker)

    # Orders.

    def _read(self) -> None:
        try:
            frame = frames.receive(self._sock)
        except BlockingIOError:
            return
        except frames.ChannelClosed:
            self.done = True
            return
        header = frame.header
        match header["order"]:
            case "run":
                self._accept(frame)
            case "cancel":
                self._cancel(header["key"])
            case "open":
                self._enqueue(_Waiting(header["key"], self._loop.now(), header["session"], None))
            case "close":
                worker = self._sessions.pop(header["session"], None)
                if worker is not None:
                    worker.kill()
        frame.close()

    def _accept(self, frame: frames.Frame) -> None:
        header = frame.header
        code, *files = frame.fds
        frame.fds = []
        task = Task(
            key=header["key"],
            code=code,
            files=list(zip(header["files"], files, strict=True)),
            wall=header["wall"],
            cpu=header["cpu"],
            memory=header["memory"],
            pids=header["pids"],
            session=bool(header["session"]),
        )
        waiting = _Waiting(task.key, self._loop.now(), header["session"], task)
        if task.session:
            self._run_in_session(waiting, task)
        else:
            self._enqueue(waiting)

    def _run_in_session(self, waiting: _Waiting, task: Task) -> None:
        worker = self._sessions.get(waiting.session)
        if worker is None or not worker.parked:
            self._refuse(waiting, "the session has ended", lost=True)
        else:
            self._start(waiting, worker, task)

    def _cancel(self, key: str) -> None:
        if key in self._running:
            self._running[key].stop("CANCELLED")
        for waiting in [w for w in self._waiting if w.key == key]:
            self._waiting.remove(waiting)
            if waiting.worker is not None:
                waiting.worker.kill()
            if waiting.task is not None:
                waiting.task.close()
            self._outbox.put({"event": "finished", "key": key, **_report(Outcome(status="CANCELLED"), session=False)})

    def _enqueue(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        self._match()

    def _match(self) -> None:
        """Give waiting tasks to parked jobs, first come first served; start what is missing."""
        for waiting in list(self._waiting):
            if waiting.worker is not None:
                if not waiting.worker.parked:
                    continue
                worker: Worker | None = waiting.worker
            else:
                worker = self.pool.parked()
            if worker is None:
                if not self.pool.ready_to_fork():
                    waiting.worker = self.pool.cold()
                continue
            self._waiting.remove(waiting)
            self._give(waiting, worker)
        self.pool.refill(sum(1 for w in self._waiting if w.worker is None))

    def _give(self, waiting: _Waiting, worker: Worker) -> None:
        if waiting.task is not None:
            self._start(waiting, worker, waiting.task)
            return
        worker.session = True
        self._sessions[waiting.session] = worker
        self._outbox.put({"event": "opened", "key": waiting.key, "warm": worker.launcher.many})

    def _start(self, waiting: _Waiting, worker: Worker, task: Task) -> None:
        self._running[task.key] = worker
        queued = self._loop.now() - waiting.since
        self._outbox.put({"event": "started", "key": task.key, "warm": worker.launcher.many, "queued": queued})
        worker.run(task)

    def _refuse(self, waiting: _Waiting, detail: str, *, lost: bool = False) -> None:
        if waiting.task is not None:
            waiting.task.close()
        outcome = Outcome(status="SANDBOX_ERROR", detail=detail)
        self._outbox.put({"event": "finished", "key": waiting.key, **_report(outcome, session=lost)})

    def _forget(self, worker: Worker) -> None:
        for session in [name for name, owner in self._sessions.items() if owner is worker]:
            del self._sessions[session]
            self._outbox.put({"event": "session_lost", "session": session})
        self.pool.discard(worker)

    def _tick(self) -> None:
        self.pool.tick()
        for waiting in list(self._waiting):
            if self._loop.now() - waiting.since > _START_SECONDS:
                self._waiting.remove(waiting)
                if waiting.worker is not None:
                    waiting.worker.kill()
                self._refuse(waiting, "no sandbox came up in time")
        self._match()
        parked = self.pool.parked_count()
        if parked != self._parked:
            self._parked = parked
            self._outbox.put({"event": "pool", "parked": parked})

    def close(self) -> None:
        """Let go of the service's channel."""
        self._loop.remove(self._sock.fileno())
        with contextlib.suppress(OSError):
            self._sock.close()


def _report(outcome: Outcome, *, session: bool) -> dict[str, Any]:
    return {
        "status": outcome.status,
        "exit": outcome.exit_code,
        "cpu": outcome.cpu,
        "wall": outcome.wall,
        "peak": outcome.peak_memory,
        "stdout_truncated": outcome.stdout_truncated,
        "stderr_truncated": outcome.stderr_truncated,
        "dropped": outcome.dropped,
        "state_lost": session and not outcome.alive,
        "detail": outcome.detail,
    }
