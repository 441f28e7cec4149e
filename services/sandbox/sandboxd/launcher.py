"""Starts bubblewrap as an unprivileged user and talks to the first process inside."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.sandbox.inside import frames, linux
from services.sandbox.sandboxd import bubblewrap
from services.sandbox.sandboxd.config import Bounds
from services.sandbox.sandboxd.loop import Loop

_CONTROL_FD, _ARGUMENTS_FD = 3, 4
_DIAGNOSTIC_BYTES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to start a sandbox: the program, its options, the filter, and what it imports first."""

    bwrap: str
    options: tuple[str, ...]
    program: bytes
    bounds: Bounds
    preload: tuple[str, ...] = ()
    proc: bool = True

    def setup(self, *, own_namespaces: bool, preload: bool) -> dict[str, Any]:
        """Return the first message to the launcher inside."""
        bounds = self.bounds
        return {
            "own_namespaces": own_namespaces,
            "proc": self.proc,
            "preload": list(self.preload) if preload else [],
            "font_folder": bubblewrap.FONTS,
            "mounts": [
                ("/workspace", bounds.workspace_bytes, bounds.inodes),
                ("/tmp", bounds.tmp_bytes, bounds.inodes),
                ("/dev/shm", bounds.shm_bytes, bounds.inodes),
            ],
        }


class Launcher:
    """A bubblewrap process with our launcher inside. A zygote (`many`) forks jobs; otherwise it becomes the one."""

    def __init__(
        self, loop: Loop, recipe: Recipe, uid: int, *, many: bool, on_change: Callable[[Launcher], None]
    ) -> None:
        self.many = many
        # Each job has a user namespace of its own, or the group counts its processes.
        self.own_users = recipe.proc
        self.uid = uid
        self.born = loop.now()
        self.jobs = 0
        self.ready = False
        self.alive = True
        self._loop = loop
        self._on_change = on_change
        self._said = ""
        self._control, theirs = frames.pair()
        self._diagnostics = os.memfd_create("diagnostics", os.MFD_CLOEXEC)
        self.pid = _spawn(recipe, uid, theirs, self._diagnostics)
        theirs.close()
        with contextlib.suppress(frames.ChannelClosed):
            frames.send(self._control, recipe.setup(own_namespaces=many, preload=many), recipe.program)
        self._control.settimeout(0)
        loop.add_reader(self._control.fileno(), self._read)

    def start_job(self, control: socket.socket, out_fd: int, err_fd: int) -> None:
        """Hand over the inner ends of a job's channel and pipes; raise ChannelClosed when the sandbox is gone."""
        self.jobs += 1
        frames.send(self._control, {"kind": "job"}, fds=[control.fileno(), out_fd, err_fd])

    def diagnostics(self) -> str:
        """Return what bubblewrap or the launcher wrote to standard error, also after the end."""
        if self._diagnostics >= 0:
            self._said = os.pread(self._diagnostics, _DIAGNOSTIC_BYTES, 0).decode("utf-8", "replace").strip()
        return self._said

    def kill(self) -> None:
        """Kill bubblewrap; the kernel then kills all that is inside, and this returns when bubblewrap is reaped."""
        if not self.alive:
            return
        self.alive = self.ready = False
        self._loop.remove(self._control.fileno())
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def close(self) -> None:
        """Kill and release everything."""
        self.kill()
        if self._diagnostics >= 0:
            self.diagnostics()
            os.close(self._diagnostics)
            self._diagnostics = -1

    def _read(self) -> None:
        try:
            frame = frames.receive(self._control)
        except BlockingIOError:
            return
        except frames.ChannelClosed:
            # A cold launcher hangs up when it becomes its job; that job's own channel tells about its end.
            if self.many or not self.ready:
                self.kill()
                self._on_change(self)
            else:
                self._loop.remove(self._control.fileno())
            return
        frame.close()
        self.ready = True
        self._on_change(self)


def _spawn(recipe: Recipe, uid: int, control: socket.socket, diagnostics: int) -> int:
    """Start bubblewrap with an empty environment and return its process id."""
    text = b"\0".join(option.encode() for option in recipe.options) + b"\0"
    options = os.memfd_create("options", os.MFD_CLOEXEC)
    os.write(options, text)
    os.lseek(options, 0, os.SEEK_SET)
    command = [recipe.bwrap, "--args", str(_ARGUMENTS_FD), "--", *bubblewrap.command()]
    pid = os.fork()
    if pid == 0:
        try:
            _become(uid, control.fileno(), options, diagnostics)
            os.execve(recipe.bwrap, command, {})
        except BaseException as error:
            os.write(2, f"bubblewrap could not be started: {error}".encode())
        os._exit(127)
    os.close(options)
    return pid


def _become(uid: int, control: int, options: int, diagnostics: int) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    sources = [os.dup2(fd, 200 + index) for index, fd in enumerate((null, null, diagnostics, control, options))]
    for target, fd in enumerate(sources):
        os.dup2(fd, target)
    os.closerange(_ARGUMENTS_FD + 1, 4096)
    if os.geteuid() == 0:
        # As root bubblewrap would map the sandbox to host root; drop for good before it starts.
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    linux.set_no_new_privileges()
    linux.die_with_parent()
