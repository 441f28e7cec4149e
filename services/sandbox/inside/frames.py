"""One message on a SOCK_SEQPACKET unix socket: a JSON header, raw bytes after it, and open files beside it."""

from __future__ import annotations

import array
import json
import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Below the kernel's default socket buffer, so that a frame never needs a larger one.
MAX_FRAME = 160 * 1024
# SCM_MAX_FD of the kernel is 253.
MAX_FDS = 64
_LENGTH = struct.Struct("<I")
_CREDENTIALS = struct.Struct("iII")


class Frame:
    """A received message. The receiver owns `fds`; `pid` is the sender's by the kernel, 0 without SO_PASSCRED."""

    __slots__ = ("fds", "header", "payload", "pid")

    def __init__(self, header: dict[str, Any], payload: bytes = b"") -> None:
        self.header = header
        self.payload = payload
        self.fds: list[int] = []
        self.pid = 0

    def close(self) -> None:
        """Close the files nobody took."""
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()


class ChannelClosed(Exception):
    """The other side is gone."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def encode(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text + payload


def send(sock: socket.socket, header: dict[str, Any], payload: bytes = b"", fds: Sequence[int] = ()) -> None:
    """Send one frame; raise ChannelClosed when nobody listens, BlockingIOError when the socket is full."""
    send_encoded(sock, encode(header, payload), fds)


def send_encoded(sock: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    """Send bytes made by `encode`."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sock.sendmsg([data], rights)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ChannelClosed from error


def receive(sock: socket.socket) -> Frame:
    """Return the next frame; raise ChannelClosed at the end, BlockingIOError when there is none yet."""
    space = socket.CMSG_SPACE(MAX_FDS * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)
    try:
        data, ancillary, flags, _ = sock.recvmsg(MAX_FRAME, space, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError as error:
        raise ChannelClosed from error
    fds, pid = _ancillary(ancillary)
    frame = None if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) else _decode(data)
    if frame is None:
        # The end, or nonsense, after which nothing more is to be expected.
        for fd in fds:
            os.close(fd)
        raise ChannelClosed
    frame.fds, frame.pid = fds, pid
    return frame


def _decode(data: bytes) -> Frame | None:
    try:
        end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        header = json.loads(data[_LENGTH.size : end]) if end <= len(data) else None
    except (ValueError, RecursionError, struct.error):
        return None
    return Frame(header, data[end:]) if isinstance(header, dict) else None


def _ancillary(items: list[tuple[int, int, bytes]]) -> tuple[list[int], int]:
    fds: list[int] = []
    pid = 0
    for level, kind, data in items:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_RIGHTS:
            received = array.array("i")
            received.frombytes(data[: len(data) - len(data) % received.itemsize])
            fds.extend(received)
        elif kind == socket.SCM_CREDENTIALS:
            pid = _CREDENTIALS.unpack_from(data)[0]
    return fds, pid
