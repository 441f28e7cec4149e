"""Server-sent events from raw bytes: the hot path of every stream, so it makes no object per line.

The rules are those of the HTML standard, chapter 9.2; only `data` matters here.
"""

from __future__ import annotations

MAX_EVENT_BYTES = 16 * 1024 * 1024


class EventTooLarge(Exception):
    """One event grew past MAX_EVENT_BYTES."""


class EventSplitter:
    """Gives the data of each complete event; bytes may be cut anywhere, also inside a character or a line end."""

    def __init__(self) -> None:
        self._rest = b""
        self._skip_newline = False

    def feed(self, received: bytes) -> list[bytes]:
        """Return the data of the events that `received` completes; events without data are left out."""
        if self._skip_newline or b"\r" in received:
            received = self._with_plain_newlines(received)
        waiting = self._rest + received if self._rest else received
        complete, separator, self._rest = waiting.rpartition(b"\n\n")
        if not separator:
            if len(waiting) > MAX_EVENT_BYTES:
                raise EventTooLarge(f"an event of more than {MAX_EVENT_BYTES} bytes")
            return []
        payloads = []
        for block in complete.split(b"\n\n"):
            # Nearly every event is a single line of data.
            payload = block[6:] if block.startswith(b"data: ") and b"\n" not in block else _data(block)
            if payload:
                payloads.append(payload)
        return payloads

    def finish(self) -> list[bytes]:
        """Return the data of a last event that the server did not end with an empty line."""
        payload = _data(self._rest)
        self._rest = b""
        return [payload] if payload else []

    def _with_plain_newlines(self, received: bytes) -> bytes:
        """Turn CR and CRLF into LF, also where a CRLF is cut in two."""
        if self._skip_newline and received:
            self._skip_newline = False
            received = received.removeprefix(b"\n")
        if received.endswith(b"\r"):
            self._skip_newline = True
        return received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _data(block: bytes) -> bytes:
    """Return the data lines of an event, joined; empty when it has none."""
    lines = []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
    return b"\n".join(lines)
