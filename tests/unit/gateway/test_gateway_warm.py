"""An event stream on its way to its client: what keeps it open, what ends it, and that its source is always closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest

from services.gateway.ending import Ending
from services.gateway.settings import Settings
from services.gateway.sse import HEADERS, KEEPALIVE, EventStream, Last

KEPT = Settings().keepalive
LEFT = {"type": "http.disconnect"}


class LoopClock:
    """The running loop's time, which passes only by `advance`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = asyncio.get_running_loop().time()
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self._now)

    async def advance(self, seconds: float) -> None:
        await settle()
        self._now += seconds
        await settle()


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


class Client:
    """The other end: what it was sent, when it leaves, and whether it reads."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.reads = asyncio.Event()
        self.reads.set()
        self.sent: list[bytes] = []
        self.started = self.finished = False
        self.messages_sent = 0

    async def receive(self) -> Any:
        return await self.messages.get()

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.started = True
            return
        self.messages_sent += 1
        if message["body"]:
            self.sent.append(message["body"])
        self.finished = not message["more_body"]

    def taken(self) -> list[bytes]:
        taken, self.sent = self.sent, []
        return taken


class Source:
    """Chunks as they are put; an empty one is the end."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        self.closed = False

    async def chunks(self) -> AsyncGenerator[bytes]:
        try:
            while chunk := await self.queue.get():
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
        finally:
            self.closed = True


def stream(source: Source, client: Client, **options: Any) -> asyncio.Task[None]:
    response = EventStream(source.chunks(), KEPT, **options)
    return asyncio.create_task(response({"type": "http"}, client.receive, client.send))


async def test_silence_is_broken_every_15_seconds_and_each_event_starts_it_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, source, client = LoopClock(monkeypatch), Source(), Client()
    serving = stream(source, client)
    for _ in range(3):
        await clock.advance(14.9)
        assert client.taken() == []
        await clock.advance(0.2)
        assert client.taken() == [KEEPALIVE] == [b": keep-alive\n\n"]
    await clock.advance(14.0)
    source.queue.put_nowait(b"data: 1\n\n")
    await clock.advance(0.0)
    assert client.taken() == [b"data: 1\n\n"]
    await clock.advance(14.9)
    assert client.taken() == []
    source.queue.put_nowait(b"")
    await serving
    assert client.finished
    assert source.closed


async def test_a_client_that_does_not_read_is_sent_no_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, source, client = LoopClock(monkeypatch), Source(), Client()
    serving = stream(source, client)
    await settle()
    client.reads.clear()
    source.queue.put_nowait(b"data: 1\n\n")
    for _ in range(4):
        await clock.advance(15.1)
    client.reads.set()
    source.queue.put_nowait(b"")
    await serving
    assert client.taken() == [b"data: 1\n\n"]


@pytest.mark.parametrize("early", [True, False])
async def test_an_ending_says_farewell_and_closes_the_source(*, early: bool) -> None:
    source, client, lapsed, draining = Source(), Client(), Ending(), Ending()
    if early:
        draining.set()
    serving = stream(source, client, until=(lapsed, draining), farewell=b"data: bye\n\n")
    await settle()
    draining.set()
    lapsed.set()
    await serving
    assert client.taken() == [b"data: bye\n\n"]
    assert client.finished
    assert source.closed


async def test_a_stream_that_ends_is_not_ended_again() -> None:
    source, client, lapsed = Source(), Client(), Ending()
    serving = stream(source, client, until=(lapsed,), farewell=b"data: bye\n\n")
    source.queue.put_nowait(b"data: 1\n\n")
    source.queue.put_nowait(b"")
    await serving
    lapsed.set()
    await settle()
    assert client.taken() == [b"data: 1\n\n"]


async def test_the_last_chunk_leaves_with_the_end_and_nothing_is_read_after_it() -> None:
    source, client = Source(), Client()
    serving = stream(source, client, farewell=b"data: bye\n\n")
    for chunk in (b"data: 1\n\n", Last(b"data: 2\n\n"), b"data: 3\n\n"):
        source.queue.put_nowait(chunk)
    await serving
    assert client.taken() == [b"data: 1\n\n", b"data: 2\n\n"]
    assert client.finished
    assert client.messages_sent == 2
    assert source.closed


async def test_a_client_that_leaves_ends_the_stream_without_a_word() -> None:
    source, client = Source(), Client()
    serving = stream(source, client, farewell=b"data: bye\n\n")
    await settle()
    client.messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
    await settle()
    assert not serving.done()
    client.messages.put_nowait(LEFT)
    await serving
    assert client.started
    assert not client.finished
    assert client.taken() == []
    assert source.closed


@pytest.mark.parametrize("kind", [bytes, Last])
async def test_a_client_that_neither_reads_nor_stays_holds_nothing(kind: type[bytes]) -> None:
    source, client = Source(), Client()
    serving = stream(source, client)
    await settle()
    client.reads.clear()
    source.queue.put_nowait(kind(b"data: 1\n\n"))
    await settle()
    client.messages.put_nowait(LEFT)
    await serving
    assert source.closed


async def test_nobody_watches_a_client_whose_request_is_still_read() -> None:
    source, client = Source(), Client()
    serving = stream(source, client, watch_client=False)
    client.messages.put_nowait(LEFT)
    await settle()
    assert client.messages.qsize() == 1
    source.queue.put_nowait(b"")
    await serving
    assert client.finished


async def test_a_failing_source_breaks_the_response_off() -> None:
    source, client = Source(), Client()
    serving = stream(source, client)
    source.queue.put_nowait(TimeoutError("the source's own"))
    with pytest.raises(TimeoutError, match="own"):
        await serving
    assert not client.finished
    assert source.closed


async def test_cancelling_the_response_cancels_it() -> None:
    source, client, draining = Source(), Client(), Ending()
    serving = stream(source, client, until=(draining,))
    await settle()
    draining.set()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert source.closed


async def test_a_stream_tells_proxies_to_leave_it_alone() -> None:
    response = EventStream(Source().chunks(), timedelta(seconds=1))
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-accel-buffering"] == "no"
    assert HEADERS.keys() >= {"Cache-Control", "X-Accel-Buffering"}
    assert "content-encoding" not in response.headers


async def test_an_ending_tells_each_listener_once() -> None:
    ending = Ending()
    told: list[str] = []

    def first() -> None:
        told.append("first")

    def second() -> None:
        told.append("second")

    ending.tell(first)
    ending.tell(second)
    ending.forget(second)
    ending.set()
    ending.set()
    ending.tell(second)
    assert told == ["first", "second"]
    await ending.wait()
