"""Process 1 of a job: builds its private view, confines itself, starts the interpreter, collects the result.

By the time the first byte of foreign code arrives nothing in the job's namespaces has a capability or an unfiltered
system call: the filter is installed here, before the interpreter is forked.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket

from . import frames, harvest, interpreter, linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WORKSPACE = "/workspace"
_COPY = 1 << 20
_ALL_NAMESPACES = (
    linux.CLONE_NEWUSER
    | linux.CLONE_NEWNS
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWNET
    | linux.CLONE_NEWCGROUP
)


class Confined(BaseException):
    """Unwinds the interpreter's process to the top of its stack, so that no frame of the harness is left above code."""

    def __init__(self, channel_fd: int, out_fd: int, err_fd: int) -> None:
        super().__init__()
        self.descriptors = (channel_fd, out_fd, err_fd)


class View:
    """What every job gets: the filter, sizes of its file systems, and whether it needs namespaces of its own.

    `proc` is False where the host masks its own, so that none can be mounted. `mounts` has bytes and inodes by path.
    """

    def __init__(self, header: dict[str, Any], program: bytes) -> None:
        self.program = program
        self.own_namespaces = bool(header["own_namespaces"])
        self.proc = bool(header["proc"])
        self.mounts = {path: (size, inodes) for path, size, inodes in header["mounts"]}
        self.font_folder = str(header["font_folder"])


def start(view: View, control: socket.socket, out_fd: int, err_fd: int) -> None:
    """Become a job; never returns, except by Confined in the interpreter's process.

    Called in a freshly forked, single-threaded process.
    """
    try:
        uid, gid = os.getuid(), os.getgid()
        linux.die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Code may send any signal to its process 1; the kernel drops those that have no handler there.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        flags = _ALL_NAMESPACES if view.own_namespaces else linux.CLONE_NEWUSER | linux.CLONE_NEWNS
        if view.proc:
            linux.unshare(flags)
            linux.map_own_ids(uid, gid)
        else:
            linux.unshare(flags & ~linux.CLONE_NEWUSER)
        if view.own_namespaces:
            child = os.fork()
            if child:
                control.close()
                os.closerange(3, 4096)
                os.waitpid(child, 0)
                os._exit(0)
            linux.die_with_parent()
        _Init(view, control, out_fd, err_fd).run()
    except Confined:
        raise
    except BaseException as error:
        with contextlib.suppress(Exception):
            frames.send(control, {"kind": "failed", "detail": repr(error)[:500]})
    os._exit(125)


class _Init:
    def __init__(self, view: View, control: socket.socket, out_fd: int, err_fd: int) -> None:
        self._view = view
        self._control = control
        self._outputs = (out_fd, err_fd)
        self._child = 0
        self._session = False
        self._stopped = False
        self._seen: dict[str, harvest.Fingerprint] = {}
        self._bounds = harvest.Bounds(files=0, file_bytes=0, total_bytes=0)

    def run(self) -> None:
        _build_view(self._view)
        root = os.open(WORKSPACE, os.O_RDONLY | os.O_DIRECTORY)
        frames.send(self._control, {"kind": "hello"}, fds=[root])
        os.close(root)
        if frames.receive(self._control).header.get("kind") != "go":
            os._exit(0)
        channel = self._fork_interpreter()
        self._serve(channel)

    def _fork_interpreter(self) -> socket.socket:
        mine, theirs = socket.socketpair()
        # The kernel's choice under memory pressure should be the code, not the process that reports on it.
        _write("/proc/self/oom_score_adj", "1000")
        go_read, go_write = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(go_write)
            os.read(go_read, 1)
            _confine(self._view.program)
            linux.set_dumpable(dumpable=True)
            for end in (self._control, mine):
                end.detach()
            raise Confined(theirs.detach(), *self._outputs)
        _write("/proc/self/oom_score_adj", "0")
        if self._view.proc:
            flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
            linux.mount("none", "/proc", None, linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY | flags)
        linux.set_dumpable(dumpable=False)
        _confine(self._view.program)
        os.write(go_write, b"g")
        for fd in (go_read, go_write, *self._outputs):
            os.close(fd)
        theirs.close()
        return mine

    def _serve(self, channel: socket.socket) -> None:
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ, lambda: self._command(channel))
            selector.register(channel, selectors.EVENT_READ, lambda: self._notice(channel, selector))
            selector.register(wake_read, selectors.EVENT_READ, lambda: os.read(wake_read, 4096))
            while True:
                for key, _ in selector.select():
                    key.data()
                self._reap()

    def _command(self, channel: socket.socket) -> None:
        frame = frames.receive(self._control)
        match frame.header["kind"]:
            case "run":
                self._run(frame, channel)
            case "interrupt":
                os.kill(self._child, signal.SIGINT)
            case "kill":
                os.kill(-1, signal.SIGKILL)

    def _run(self, frame: frames.Frame, channel: socket.socket) -> None:
        header = frame.header
        self._session = bool(header["session"])
        self._bounds = harvest.Bounds(**header["bounds"])
        code, *files = frame.fds
        for name, fd in zip(header["files"], files, strict=True):
            self._place(name, fd)
        source = _read_all(code)
        frame.close()
        if self._stopped:
            os.kill(self._child, signal.SIGCONT)
            self._stopped = False
        text = json.dumps({"session": self._session, "rlimits": header["rlimits"]}).encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            channel.sendall(interpreter.LENGTHS.pack(len(text), len(source)) + text + source)

    def _place(self, name: str, source: int) -> None:
        path = os.path.join(WORKSPACE, name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        size, offset = os.fstat(source).st_size, 0
        while offset < size:
            offset += os.sendfile(target, source, offset, _COPY)
        self._seen[name] = harvest.fingerprint(os.fstat(target))
        os.close(target)

    def _notice(self, channel: socket.socket, selector: selectors.BaseSelector) -> None:
        """Read what the interpreter says; after the first run that is foreign code speaking, so nothing is trusted."""
        data = channel.recv(2)
        if not data:
            selector.unregister(channel)
        elif data[:1] == b"P":
            frames.send(self._control, {"kind": "parked"})
        elif self._session and data[:1] == b"D":
            code = data[1] if len(data) > 1 else 1
            # Between two calls of a session nothing of it may run: no thread, no child.
            os.kill(self._child, signal.SIGSTOP)
            self._stopped = True
            self._end_strangers()
            self._report(code, alive=True)

    def _end_strangers(self) -> None:
        own = {os.getpid(), self._child}
        with contextlib.suppress(OSError):
            for entry in os.listdir("/proc"):
                if entry.isdigit() and int(entry) not in own:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(entry), signal.SIGKILL)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._child:
                self._finish(status)

    def _finish(self, status: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        code = os.waitstatus_to_exitcode(status)
        self._report(code if code >= 0 else 128 - code, alive=False)
        os._exit(0)

    def _report(self, code: int, *, alive: bool) -> None:
        found = harvest.collect(WORKSPACE, self._seen, self._bounds)
        header: dict[str, Any] = {"kind": "done", "exit": code, "alive": alive, "truncated": found.truncated}
        header["files"] = [name for name, _ in found.files]
        header["dropped"] = found.dropped
        frames.send(self._control, header, fds=[fd for _, fd in found.files])
        found.close()


def _build_view(view: View) -> None:
    """Mount what is private to the job; the outer view is read-only already."""
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    nosuid = linux.MS_NOSUID | linux.MS_NODEV
    if view.own_namespaces and view.proc:
        linux.mount("proc", "/proc", "proc", nosuid | linux.MS_NOEXEC)
    # No further user namespaces: what `bwrap --disable-userns` does, which would also take away the mounts below.
    _write("/proc/sys/user/max_user_namespaces", "0")
    for path, (size, inodes) in view.mounts.items():
        linux.mount("tmpfs", path, "tmpfs", nosuid, f"size={size},nr_inodes={inodes},mode=0755")
    os.chdir(WORKSPACE)
    link_fonts(view.font_folder)


def link_fonts(folder: str) -> None:
    """Make matplotlib's folder: it must be writable, and holds the list baked for this machine."""
    os.mkdir("/tmp/mpl")
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            os.symlink(f"{folder}/{name}", f"/tmp/mpl/{name}")


def _confine(program: bytes) -> None:
    linux.drop_capabilities()
    linux.set_no_new_privileges()
    linux.install_filter(program)


def _write(path: str, text: str) -> None:
    with contextlib.suppress(FileNotFoundError), open(path, "w", encoding="ascii") as file:
        file.write(text)


def _read_all(fd: int) -> bytes:
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        return file.read()
