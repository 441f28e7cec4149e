"""Multipart bodies read as they arrive: the parts' headers and bytes in order, never a whole file in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from services.gateway.problems import BadInput

# Bytes handed on at once; the services take at most 1 MiB in a message.
CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBegins:
    """A part begins. `filename` is empty for a plain field."""

    name: str
    filename: str
    media_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBytes:
    """Its next bytes."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEnds:
    """It is complete."""


PartEvent = PartBegins | PartBytes | PartEnds


async def read_parts(request: Request) -> AsyncIterator[PartEvent]:
    """Yield the parts of a multipart body; raise BadInput when it is none or breaks off."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise BadInput("send the files as multipart/form-data, one part 'file' for each")
    assembler = _Assembler()
    try:
        parser = MultipartParser(boundary, assembler.callbacks())  # type: ignore[arg-type]
        async for chunk in request.stream():
            for start in range(0, len(chunk), CHUNK):
                parser.write(chunk[start : start + CHUNK])
                while assembler.events:
                    yield assembler.events.popleft()
        parser.finalize()
    except MultipartParseError as error:
        raise BadInput(f"the multipart body is damaged: {error}") from error
    except ClientDisconnect as error:
        raise BadInput("the client left before the upload was complete") from error
    if not assembler.complete:
        raise BadInput("the multipart body breaks off before its last boundary")


@dataclass(slots=True)
class _Assembler:
    """Turns the parser's callbacks into events."""

    events: deque[PartEvent] = field(default_factory=deque)
    complete: bool = False
    _headers: dict[bytes, bytes] = field(default_factory=dict)
    _name: bytearray = field(default_factory=bytearray)
    _value: bytearray = field(default_factory=bytearray)

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._headers.clear,
            "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._header_ends,
            "on_headers_finished": self._headers_finished,
            "on_part_data": lambda data, start, end: self.events.append(PartBytes(data=bytes(data[start:end]))),
            "on_part_end": lambda: self.events.append(PartEnds()),
            "on_end": self._all_ends,
        }

    def _header_ends(self) -> None:
        self._headers[bytes(self._name).lower()] = bytes(self._value)
        self._name.clear()
        self._value.clear()

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        media_type, _ = parse_options_header(self._headers.get(b"content-type", b""))
        self.events.append(
            PartBegins(
                name=options.get(b"name", b"").decode("utf-8", "replace"),
                filename=options.get(b"filename", b"").decode("utf-8", "replace"),
                media_type=media_type.decode("latin-1"),
            )
        )

    def _all_ends(self) -> None:
        self.complete = True
