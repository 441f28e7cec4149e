"""Runs our own code in a real sandbox before the service may: the probe, and the bake of the fonts."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from services.sandbox.sandboxd.loop import Loop
from services.sandbox.sandboxd.pool import Pool
from services.sandbox.sandboxd.probe import HostView
from services.sandbox.sandboxd.task import Outcome, Task
from services.sandbox.sandboxd.worker import Worker

_MEMORY = 1 << 30


@dataclass(slots=True)
class Trial:
    """Result of a trial run; `host` is missing when the sandbox did not come up."""

    status: str = "SANDBOX_ERROR"
    stdout: bytes = b""
    stderr: bytes = b""
    detail: str = ""
    host: HostView | None = None
    files: dict[str, bytes] = field(default_factory=dict)


class Trials:
    """Listener of workers that run our own code, one at a time."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._current = Trial()
        self._code = b""
        self._wall = 0.0
        self._over = False
        self._wanted: Worker | None = None
        self._pool: Pool | None = None

    def run(self, pool: Pool, worker: Worker, code: str, *, wall: float) -> Trial:
        """Run `code` in `worker` and return what came of it."""
        self._current, self._code, self._wall, self._over = Trial(), code.encode(), wall, False
        self._wanted, self._pool = worker, pool
        if worker.parked:
            self.parked(worker)
        if not self._loop.run_until(lambda: self._over, wall + 30.0):
            worker.kill()
            self._current.detail = "the sandbox did not answer in time"
        return self._current

    def parked(self, worker: Worker) -> None:
        if worker is not self._wanted:
            return
        self._current.host = HostView.of(worker.init_pid)
        code = os.memfd_create("code", os.MFD_CLOEXEC)
        os.write(code, self._code)
        worker.run(Task(key="trial", code=code, files=(), wall=self._wall, cpu=self._wall, memory=_MEMORY, pids=64))

    def output(self, worker: Worker, task: Task, stream: str, data: bytes) -> None:
        if stream == "stdout":
            self._current.stdout += data
        else:
            self._current.stderr += data

    def finished(self, worker: Worker, task: Task, outcome: Outcome) -> None:
        trial = self._current
        trial.status, trial.detail = outcome.status, outcome.detail or trial.stderr.decode("utf-8", "replace")[-500:]
        for name, fd, _ in outcome.files:
            with open(fd, "rb") as file:
                file.seek(0)
                trial.files[name] = file.read()
        self._end(worker)

    def lost(self, worker: Worker) -> None:
        if worker is self._wanted:
            self._current.detail = worker.launcher.diagnostics() or "the sandbox ended before it was ready"
        self._end(worker)

    def _end(self, worker: Worker) -> None:
        if self._pool is not None:
            self._pool.discard(worker)
        if worker is self._wanted:
            self._over = True
