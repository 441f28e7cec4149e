"""The process that runs the code: waits for it, lowers its own limits, runs it, and for a session waits again."""

from __future__ import annotations

import atexit
import gc
import json
import os
import resource
import signal
import socket
import struct
import sys
import threading
import types

from .display import SOURCE_NAME, print_traceback, remember_source, show_value, split_last_value
from .figures import Figures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LENGTHS = struct.Struct("<II")
COMMAND_FD = 3
_EXIT_INTERRUPTED = 130


def run(channel_fd: int, out_fd: int, err_fd: int, workspace: str) -> None:
    """Serve commands from the channel; never returns. Called in a process that is already confined."""
    try:
        _wire_descriptors(channel_fd, out_fd, err_fd)
        channel = socket.socket(fileno=COMMAND_FD)
        channel.sendall(b"P")  # parked
        _Interpreter(channel, workspace).serve()
    except BaseException as error:
        os.write(2, f"sandbox: the interpreter failed: {error!r}\n".encode())
    os._exit(126)


def _wire_descriptors(channel_fd: int, out_fd: int, err_fd: int) -> None:
    os.setsid()
    null = os.open("/dev/null", os.O_RDONLY)
    high = [os.dup2(fd, 100 + index, inheritable=False) for index, fd in enumerate((null, out_fd, err_fd, channel_fd))]
    for target, fd in enumerate(high):
        os.dup2(fd, target, inheritable=target < COMMAND_FD)
    os.closerange(COMMAND_FD + 1, 4096)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    # Over the limit a write fails with EFBIG, which Python reports, rather than killing the process.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


class _Interpreter:
    def __init__(self, channel: socket.socket, workspace: str) -> None:
        self._channel = channel
        self._figures = Figures(workspace)
        self._module = types.ModuleType("__main__")
        self._ran_before = False

    def serve(self) -> None:
        while True:
            command, source = self._receive()
            session = bool(command["session"])
            if not self._ran_before:
                self._prepare(command)
            self._ran_before = True
            if not session:
                self._channel.close()
            code = self._execute(source)
            if not session:
                _leave(code)
            _flush()
            self._channel.sendall(bytes((ord("D"), code & 0xFF)))

    def _receive(self) -> tuple[dict[str, Any], str]:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        header_size, source_size = LENGTHS.unpack(self._exactly(LENGTHS.size))
        header = json.loads(self._exactly(header_size))
        source = self._exactly(source_size).decode("utf-8")
        return header, source

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._channel.recv(size - len(data))
            if not piece:
                os._exit(0)
            data += piece
        return bytes(data)

    def _prepare(self, command: dict[str, Any]) -> None:
        for name, value in command["rlimits"].items():
            resource.setrlimit(getattr(resource, name), (value, value))
        # A fork inherits the state of the generators; a fresh import seeds itself.
        if "random" in sys.modules:
            sys.modules["random"].seed()
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed()
        for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
            stream = open(number, mode, buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        sys.path[:] = ["/workspace", *(entry for entry in sys.path if entry not in ("", "/opt/harness"))]
        sys.argv = [SOURCE_NAME]
        self._module.__dict__["__file__"] = SOURCE_NAME
        sys.modules["__main__"] = self._module
        self._figures.watch()
        gc.enable()

    def _execute(self, source: str) -> int:
        """Run the code and return its exit code."""
        remember_source(source)
        try:
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                body, last = split_last_value(source)
                exec(body, self._module.__dict__)
                if last is not None:
                    show_value(eval(last, self._module.__dict__))
                code = 0
            except SystemExit as leaving:
                code = _exit_code(leaving)
            self._figures.save_open()
        except KeyboardInterrupt as error:
            print_traceback(error)
            return _EXIT_INTERRUPTED
        except BaseException as error:
            print_traceback(error)
            self._figures.save_open()
            return 1
        return code


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    print(leaving.code, file=sys.stderr)
    return 1


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # the code may have put anything there
            continue


def _leave(code: int) -> None:
    """End as an interpreter does: wait for threads, run exit handlers, flush."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException as error:
        print_traceback(error)
    _flush()
    os._exit(code)
