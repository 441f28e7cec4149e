"""What keeps a quiet stream open, with the loop's clock in the test's hands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from services.gateway.settings import Settings
from services.gateway.sse import HEADERS, KEEPALIVE, EventStream, warm


class LoopClock:
    """The running loop's time, which passes only by `advance`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = asyncio.get_running_loop().time()
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self._now)

    async def advance(self, seconds: float) -> None:
        await self._settle()
        self._now += seconds
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def _from(queue: asyncio.Queue[bytes]) -> AsyncGenerator[bytes]:
    while chunk := await queue.get():
        yield chunk


async def test_silence_is_broken_every_15_seconds_and_each_event_starts_it_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = LoopClock(monkeypatch)
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    stream = warm(_from(queue), Settings().keepalive)
    for _ in range(3):
        following = asyncio.create_task(anext(stream))
        await clock.advance(14.9)
        assert not following.done()
        await clock.advance(0.2)
        assert following.done()
        assert following.result() == KEEPALIVE == b": keep-alive\n\n"
    following = asyncio.create_task(anext(stream))
    await clock.advance(14.0)
    queue.put_nowait(b"data: 1\n\n")
    await clock.advance(0.0)
    assert following.result() == b"data: 1\n\n"
    following = asyncio.create_task(anext(stream))
    await clock.advance(14.9)
    assert not following.done()
    queue.put_nowait(b"")
    with pytest.raises(StopAsyncIteration):
        await following


async def test_a_stream_tells_proxies_to_leave_it_alone() -> None:
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    response = EventStream(_from(queue))
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-accel-buffering"] == "no"
    assert HEADERS.keys() >= {"Cache-Control", "X-Accel-Buffering"}
    assert "content-encoding" not in response.headers
