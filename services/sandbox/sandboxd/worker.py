"""One job as the supervisor sees it: from the fork inside to the collected result."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
from typing import Any, Protocol

from services.sandbox.inside import frames, names
from services.sandbox.sandboxd import processes
from services.sandbox.sandboxd.cgroups import Group
from services.sandbox.sandboxd.config import Bounds
from services.sandbox.sandboxd.launcher import Launcher
from services.sandbox.sandboxd.loop import Loop
from services.sandbox.sandboxd.meter import Meter
from services.sandbox.sandboxd.output import Drain
from services.sandbox.sandboxd.task import Outcome, Task, rlimits

# Seconds between SIGINT and SIGKILL, by why the code is stopped: after a wall limit it may still save its work;
# after a cancel nobody waits for it.
_GRACE = {"TIMEOUT": 2.0, "CANCELLED": 0.3, "CPU": 0.2, "OUTPUT_LIMIT": 0.1, "OOM": 0.0}
_HARVEST_GRACE = 2.0
_KILLED = 128 + signal.SIGKILL
# With so many processes a polite request is not heard in time: a fork bomb fills both cores.
_CROWD = 16


class Listener(Protocol):
    """Who is told about a job."""

    def parked(self, worker: Worker) -> None: ...

    def output(self, worker: Worker, task: Task, stream: str, data: bytes) -> None: ...

    def finished(self, worker: Worker, task: Task, outcome: Outcome) -> None: ...

    def lost(self, worker: Worker) -> None:
        """The job ended while it had no task."""


class Worker:
    """A job: starting → parked → running → (parked, for a session) → ended."""

    def __init__(self, loop: Loop, launcher: Launcher, group: Group | None, bounds: Bounds, listener: Listener) -> None:
        self.launcher = launcher
        self.group = group
        self.listener = listener
        self.parked = False
        self.ended = False
        self.session = False
        self.task: Task | None = None
        self._loop = loop
        self._bounds = bounds
        self._device = -1
        self._pidfd = -1
        self._init_pid = 0
        self._why = ""
        self._kill_at = self._abandon_at = float("inf")
        self._started = 0.0
        self._meter = Meter(group, bounds)
        self._control, theirs = frames.pair()
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._control.settimeout(0)
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        self._drains = {
            "stdout": Drain(loop, out_read, bounds.stdout_bytes, lambda data: self._emit("stdout", data)),
            "stderr": Drain(loop, err_read, bounds.stderr_bytes, lambda data: self._emit("stderr", data)),
        }
        loop.add_reader(self._control.fileno(), self._read)
        try:
            launcher.start_job(theirs, out_write, err_write)
        except (frames.ChannelClosed, OSError):
            pass  # our end of the channel closes with theirs, which is then noticed like any other loss
        finally:
            theirs.close()
            os.close(out_write)
            os.close(err_write)

    @property
    def init_pid(self) -> int:
        """The host's number of the job's first process; 0 before it said hello."""
        return self._init_pid

    def run(self, task: Task) -> None:
        """Run `task` in this parked job; the listener hears of its end exactly once."""
        assert self.parked
        assert self.task is None
        self.parked, self.task, self._why = False, task, ""
        bounds = self._bounds
        for drain in self._drains.values():
            drain.reset()
        self._meter.begin(task)
        self._started = self._loop.now()
        self._kill_at = self._abandon_at = float("inf")
        header = {
            "kind": "run",
            "session": task.session,
            "files": [name for name, _ in task.files],
            "rlimits": rlimits(
                task, bounds, processes.data_bytes(self._init_pid), count_processes=self.launcher.own_users
            ),
            "bounds": {
                "files": bounds.artifacts,
                "file_bytes": bounds.artifact_bytes,
                "total_bytes": bounds.artifacts_bytes,
            },
        }
        with contextlib.suppress(frames.ChannelClosed):  # the loss is noticed by _read
            frames.send(self._control, header, fds=[task.code, *(fd for _, fd in task.files)])

    def stop(self, why: str) -> None:
        """Ask the code to end (SIGINT), and see to it that it does."""
        if self.task is None or self._why:
            return
        self._why = why
        self._order("interrupt")
        grace = _GRACE[why]
        if len(processes.tree(self._init_pid, at_most=_CROWD)) >= _CROWD:
            grace = 0.0
        self._kill_at = self._loop.now() + grace

    def tick(self) -> None:
        """Enforce the limits."""
        if self.task is None:
            return
        now = self._loop.now()
        if now >= self._abandon_at:
            self._end(self._why or "SANDBOX_ERROR", exit_code=_KILLED, detail="the sandbox had to be killed")
        elif now >= self._kill_at:
            self._order("kill")
            self._kill_at, self._abandon_at = float("inf"), now + _HARVEST_GRACE
        elif not self._why:
            self._check(self.task, now)

    def kill(self) -> None:
        """Kill every process of the job now and release it. A running task ends as SANDBOX_ERROR."""
        if not self.ended:
            self._end(self._why or "SANDBOX_ERROR", exit_code=_KILLED, detail="the sandbox was ended")

    def _check(self, task: Task, now: float) -> None:
        if now - self._started > task.wall:
            self.stop("TIMEOUT")
        elif any(d.total > d.keep * self._bounds.flood_factor for d in self._drains.values()):
            self.stop("OUTPUT_LIMIT")
        elif why := self._meter.exceeded(task):
            self.stop(why)

    def _read(self) -> None:
        try:
            frame = frames.receive(self._control)
        except BlockingIOError:
            return
        except frames.ChannelClosed:
            self._end(self._verdict_of_loss(), exit_code=_KILLED, detail="the sandbox ended unexpectedly")
            return
        try:
            self._handle(frame)
        except (KeyError, TypeError, ValueError, OSError) as error:
            self._end("SANDBOX_ERROR", detail=f"the sandbox spoke nonsense: {error!r}")
        finally:
            frame.close()

    def _handle(self, frame: frames.Frame) -> None:
        match frame.header["kind"]:
            case "hello" if not self._init_pid:
                self._join(frame)
            case "parked" if self.task is None:
                self.parked = True
                self.listener.parked(self)
            case "done" if self.task is not None:
                self._collect(frame)
            case "failed":
                self._end("SANDBOX_ERROR", detail=str(frame.header["detail"]))

    def _join(self, frame: frames.Frame) -> None:
        """Put the job into its group before it forks anything, and remember which device its files live on."""
        self._init_pid = frame.pid
        self._pidfd = os.pidfd_open(frame.pid)
        self._device = os.fstat(frame.fds[0]).st_dev
        self._meter.join(frame.pid)
        self._order("go")

    def _collect(self, frame: frames.Frame) -> None:
        header = frame.header
        alive = bool(header["alive"])
        exit_code = int(header["exit"])
        outcome = Outcome(status=self._verdict(exit_code), exit_code=exit_code, alive=alive)
        outcome.dropped = [(names.display(str(name)), str(reason)[:200]) for name, reason in header["dropped"]][:64]
        self._take_files(header, frame, outcome)
        self._conclude(outcome, close=not alive)

    def _take_files(self, header: dict[str, Any], frame: frames.Frame, outcome: Outcome) -> None:
        """Accept descriptors that are what they should be; nothing that came from inside is believed."""
        total = 0
        for name, fd in zip(header["files"], frame.fds[: self._bounds.artifacts], strict=True):
            found = os.fstat(fd)
            total += found.st_size
            reason = names.rejection(name)
            if not stat.S_ISREG(found.st_mode) or found.st_dev != self._device:
                reason = "it is not a regular file of the workspace"
            elif found.st_size > self._bounds.artifact_bytes or total > self._bounds.artifacts_bytes:
                reason = "it is too large"
            if reason:
                outcome.dropped.append((names.display(name), reason))
            else:
                outcome.files.append((names.normalise(name), os.dup(fd), found.st_size))

    def _verdict(self, exit_code: int) -> str:
        if self._why:
            return self._why
        if exit_code == _KILLED and self._meter.memory_killed():
            return "OOM"
        if exit_code == 128 + signal.SIGXCPU:
            return "CPU"
        return "OK" if exit_code == 0 else "ERROR"

    def _verdict_of_loss(self) -> str:
        return "OOM" if self._meter.memory_killed() else self._why or "SANDBOX_ERROR"

    def _end(self, status: str, *, exit_code: int = 0, detail: str = "") -> None:
        if self.task is not None:
            self._conclude(Outcome(status=status, exit_code=exit_code, detail=detail), close=True)
        elif not self.ended:
            self._release()
            self.listener.lost(self)

    def _conclude(self, outcome: Outcome, *, close: bool) -> None:
        task = self.task
        assert task is not None
        for drain in self._drains.values():
            drain.finish()
        outcome.wall = self._loop.now() - self._started
        outcome.cpu = self._meter.cpu()
        outcome.peak_memory = self._meter.peak_memory()
        outcome.stdout_truncated = self._drains["stdout"].truncated
        outcome.stderr_truncated = self._drains["stderr"].truncated
        self.task = None
        self.parked = not close
        if close:
            self._release()
        task.close()
        self.listener.finished(self, task, outcome)

    def _release(self) -> None:
        """Kill what is left and close everything of ours."""
        self.ended, self.parked = True, False
        self._loop.remove(self._control.fileno())
        self._control.close()
        for drain in self._drains.values():
            drain.close()
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
        if self.group is not None:
            self.group.kill()
        if not self.launcher.many:
            self.launcher.close()

    def _emit(self, stream: str, data: bytes) -> None:
        if self.task is not None:
            self.listener.output(self, self.task, stream, data)

    def _order(self, kind: str) -> None:
        with contextlib.suppress(frames.ChannelClosed, BlockingIOError):
            frames.send(self._control, {"kind": kind})
