"""A raw SSE client that time-stamps tokens: the same for every server, and cheap enough not to be what is measured."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import httptools

TOKEN = b"tok "


@dataclass(slots=True)
class Heard:
    """When a stream began and when each of its tokens came, in seconds of the monotonic clock."""

    started: float = 0.0
    ended: float = 0.0
    status: int = 0
    error: str = ""
    tokens: list[float] = field(default_factory=list)

    @property
    def first(self) -> float:
        """Seconds to the first token."""
        return self.tokens[0] - self.started

    @property
    def mean_gap(self) -> float:
        """Mean seconds between two tokens."""
        return (self.tokens[-1] - self.tokens[0]) / (len(self.tokens) - 1)


class Stream(asyncio.Protocol):
    """One keep-alive connection; `ask` sends a request and waits for the end of its body."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._heard = Heard()
        self._ended: asyncio.Future[None] | None = None
        self._parser = httptools.HttpResponseParser(self)

    async def ask(self, path: str, body: dict[str, Any], limit: float = 120.0) -> Heard:
        loop = asyncio.get_running_loop()
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\ncontent-type: application/json\r\n"
            f"accept: text/event-stream\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        self._heard, self._rest, self._ended = Heard(), b"", loop.create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._heard.started = time.monotonic()
        if self._transport is None or self._transport.is_closing():
            await loop.create_connection(lambda: self, "127.0.0.1", self._port)
        assert self._transport is not None
        self._transport.write(head.encode() + content)
        try:
            await asyncio.wait_for(self._ended, limit)
        except TimeoutError:
            self._heard.error = f"no end within {limit:g} s"
            self.close()
        self._heard.ended = time.monotonic()
        return self._heard

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._ended is not None and not self._ended.done():
            self._heard.error = "the connection was lost"
            self._ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        self._heard.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        received = self._rest + body
        whole, newline, self._rest = received.rpartition(b"\n")
        # Every token of the scripted model reads `tok `; several may come in one event. Run events repeat the whole
        # text at the end under another name, which is left out.
        count = sum(line.count(TOKEN) for line in (whole + newline).split(b"\n") if b'"citations"' not in line)
        if count:
            self._heard.tokens += [time.monotonic()] * count

    def on_message_complete(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


async def ask_all(port: int, path: str, bodies: Sequence[dict[str, Any]]) -> list[Heard]:
    """Send all requests at once, each on a connection of its own, and return what was heard."""
    streams = [Stream(port) for _ in bodies]
    try:
        return list(await asyncio.gather(*(s.ask(path, b) for s, b in zip(streams, bodies, strict=True))))
    finally:
        for stream in streams:
            stream.close()
