"""Read coalescing: who pauses for how long, and that a pause does nothing to a call but bring its tokens together."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

import httpx2
import pytest

from services.orchestrator.models.coalescing import Coalescer, Coalescing
from services.orchestrator.models.errors import ModelStalled, ModelStreamBroken
from services.orchestrator.models.ports import TextPiece
from services.orchestrator.models.reply import ReplyBuilder
from services.orchestrator.models.timing import CallClock
from services.orchestrator.models.transport import ModelTransport, reader_of
from tests.support.clock import FakeClock
from tests.support.upstream import Upstream
from tests.support.upstream_models import FakeTimers, Heard, adapter, ask, hear
from tests.support.upstream_script import Cut, Raw, Reach, Say, Turn, Wait, say

LIMITS = Coalescing(free=4, rate=100.0, longest=0.15, window=0.5)
# Every stream pauses, also a single one.
ALWAYS = Coalescing(free=0, rate=10.0)
ROLE = b'data: {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}\n\n'


def pauses(streams: int, clock: FakeClock | None = None) -> list[float]:
    """Return what each of so many streams is told that are read at the same time."""
    coalescer = Coalescer(clock or FakeClock(), LIMITS)
    return [coalescer.stream().pause() for _ in range(streams)]


def test_few_streams_never_pause() -> None:
    assert pauses(4) == [0.0] * 4


def test_the_pause_grows_with_each_stream_up_to_its_bound() -> None:
    assert pauses(40)[4:] == pytest.approx([0.01 * n if n < 15 else 0.15 for n in range(1, 37)])


def test_a_stream_counts_once_however_often_it_is_read() -> None:
    stream = Coalescer(FakeClock(), LIMITS).stream()
    assert [stream.pause() for _ in range(20)] == [0.0] * 20


def test_streams_that_are_silent_slow_no_other_down() -> None:
    clock = FakeClock()
    coalescer = Coalescer(clock, LIMITS)
    crowd = [coalescer.stream() for _ in range(14)]
    assert [stream.pause() for stream in crowd][-1] == pytest.approx(0.1)
    clock.advance(0.5)
    # They may only pause, so they count for another window.
    assert crowd[0].pause() == pytest.approx(0.1)
    clock.advance(0.5)
    assert crowd[0].pause() == 0.0


def test_a_crowd_that_ended_slows_nobody_down() -> None:
    clock = FakeClock()
    coalescer = Coalescer(clock, LIMITS)
    crowd = [coalescer.stream() for _ in range(14)]
    for _ in range(2):
        for stream in crowd:
            stream.pause()
        clock.advance(0.4)
    # Some were read in this window and the one before.
    assert crowd[0].pause() == pytest.approx(0.1)
    for stream in crowd[4:]:
        stream.end()
    assert [stream.pause() for stream in crowd[:4]] == [0.0] * 4
    assert coalescer.stream().pause() == pytest.approx(0.01)


def test_a_stream_that_ends_is_taken_off_once() -> None:
    clock = FakeClock()
    coalescer = Coalescer(clock, LIMITS)
    crowd = [coalescer.stream() for _ in range(14)]
    for stream in crowd:
        stream.pause()
    clock.advance(60.0)
    late = coalescer.stream()
    late.pause()
    for stream in (*crowd, *crowd, late, late, coalescer.stream()):
        stream.end()
    assert [coalescer.stream().pause() for _ in range(5)] == pytest.approx([0.0] * 4 + [0.01])


def test_a_crowd_that_left_long_ago_is_forgotten() -> None:
    clock = FakeClock()
    coalescer = Coalescer(clock, LIMITS)
    for stream in [coalescer.stream() for _ in range(14)]:
        stream.pause()
    clock.advance(60.0)
    assert coalescer.stream().pause() == 0.0


def test_reads_of_all_streams_together_stay_near_the_rate() -> None:
    clock = FakeClock()
    coalescer = Coalescer(clock, Coalescing(free=32, rate=1000.0, longest=0.15))
    # 120 streams, each with a token every 20 ms: 6,000 reads a second without pauses.
    due = [(number / 6000, number, coalescer.stream()) for number in range(120)]
    start, reads = clock.monotonic(), 0
    while due[0][0] < 4.0:
        at, number, stream = heapq.heappop(due)
        clock.advance(start + at - clock.monotonic())
        reads += 1
        heapq.heappush(due, (at + max(0.02, stream.pause()), number, stream))
    assert 1000 < reads / 4.0 < 1600


class Paused:
    """A call whose stream pauses after every read, on a clock that only the test moves."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = FakeTimers(self.clock)
        self.holds = FakeTimers(self.clock)
        self.transport = ModelTransport(later=self.holds.later)
        self.coalescer = Coalescer(self.clock, ALWAYS)
        self.heard = Heard()
        self.call = CallClock(self.clock)

    async def run(self, upstream: Upstream) -> Heard:
        async with adapter(
            upstream.base_url,
            clock=self.clock,
            later=self.timers.later,
            transport=self.transport,
            coalescer=self.coalescer,
        ) as model:
            return await hear(model.stream(ask(), self.call), self.heard)

    async def finish(self, hearing: asyncio.Future[Heard]) -> None:
        """Let pauses end until the call has."""
        async with asyncio.timeout(5):
            while not hearing.done():
                self.holds.advance(0.1)
                await asyncio.sleep(0)

    async def pause_after(self, text: str) -> None:
        """Return once `text` has been heard and the stream pauses."""
        await until(lambda: self.heard.text == text and self.holds.pending == 1)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until `condition` holds."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def turns(number: int = 20) -> None:
    """Let the loop poll its sockets so often."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_what_comes_in_a_pause_is_read_in_one_go_after_it() -> None:
    more, sent = asyncio.Event(), asyncio.Event()
    turn = Turn(steps=(Say(pieces=("one",)), Wait(event=more), Say(pieces=(" two", " three")), Reach(event=sent)))
    call = Paused()
    async with Upstream(turn) as upstream:
        hearing = asyncio.ensure_future(call.run(upstream))
        await call.pause_after("one")
        more.set()
        await sent.wait()
        await turns()
        assert call.heard.text == "one"
        call.holds.advance(0.1)
        await until(lambda: call.heard.text == "one two three")
        # The stall is told too long by the pause, and by no more.
        assert call.call.longest_stall == pytest.approx(0.1)
        await call.finish(hearing)
    assert call.heard.of(TextPiece) == [TextPiece(text="one"), TextPiece(text=" two three")]
    assert call.holds.pending == call.timers.pending == 0


async def test_the_first_token_is_not_kept_waiting() -> None:
    more = asyncio.Event()
    turn = Turn(steps=(Raw(content=ROLE), Wait(event=more), Raw(content=ROLE), Say(pieces=("one",)), Wait()))
    call = Paused()
    async with Upstream(turn) as upstream:
        hearing = asyncio.ensure_future(call.run(upstream))
        await upstream.next_request()
        await turns()
        assert call.holds.pending == 0
        more.set()
        await call.pause_after("one")
        hearing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hearing


async def test_a_cancel_in_a_pause_stops_the_upstream_call_at_once() -> None:
    turn = Turn(steps=(Say(pieces=("one",)), Wait()))
    call = Paused()
    async with Upstream(turn) as upstream:
        hearing = asyncio.ensure_future(call.run(upstream))
        await call.pause_after("one")
        hearing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hearing
        await upstream.requests[0].gone.wait()
    assert call.holds.pending == call.timers.pending == 0


async def test_a_pause_is_part_of_the_silence_that_is_a_stall() -> None:
    call = Paused()
    async with Upstream(Turn(steps=(Say(pieces=("one",)), Wait()))) as upstream:
        hearing = asyncio.ensure_future(call.run(upstream))
        await call.pause_after("one")
        call.holds.advance(0.1)
        call.timers.advance(179.0)
        await turns()
        assert not hearing.done()
        call.timers.advance(1.0)
        with pytest.raises(ModelStalled, match="180 s"):
            await hearing
    assert call.timers.pending == 0


async def test_a_cut_in_a_pause_is_found_after_it_and_keeps_what_came() -> None:
    more = asyncio.Event()
    turn = Turn(steps=(Say(pieces=("one",)), Wait(event=more), Cut()))
    call = Paused()
    async with Upstream(turn) as upstream:
        hearing = asyncio.ensure_future(call.run(upstream))
        await call.pause_after("one")
        more.set()
        await turns()
        assert not hearing.done()
        call.holds.advance(0.1)
        with pytest.raises(ModelStreamBroken) as caught:
            await hearing
    assert caught.value.partial_text == "one"


async def test_a_connection_that_paused_serves_again() -> None:
    more = asyncio.Event()
    turn = Turn(steps=(Say(pieces=("one",)), Wait(event=more), Say(pieces=(" two",))))
    call = Paused()
    async with (
        Upstream(turn, say("again")) as upstream,
        adapter(upstream.base_url, clock=call.clock, transport=call.transport, coalescer=call.coalescer) as model,
    ):
        hearing = asyncio.ensure_future(hear(model.stream(ask(), CallClock(call.clock)), call.heard))
        await call.pause_after("one")
        more.set()
        await call.finish(hearing)
        again = Heard()
        await call.finish(asyncio.ensure_future(hear(model.stream(ask(), CallClock(call.clock)), again)))
    assert call.heard.reply.text == "one two"
    assert again.reply.text == "again"
    assert upstream.connections_made == 1


async def test_a_body_that_came_another_way_is_read_as_it_comes() -> None:
    async with httpx2.AsyncClient(
        transport=httpx2.MockTransport(lambda request: httpx2.Response(200, content=b"whole"))
    ) as client:
        body = reader_of(await client.send(client.build_request("GET", "http://model.test/"), stream=True))
        body.hold(60.0)
        assert await body.read() == b"whole"
        assert await body.read() == b""


def test_the_mean_gap_is_that_of_chunks_however_they_were_read() -> None:
    clock = FakeClock()
    call = CallClock(clock)
    call.begin("m")
    call.arrived()
    call.token()
    clock.advance(1.0)
    call.arrived()
    call.token(4)
    assert call.mean_gap == 0.25


def test_a_reply_knows_in_how_many_chunks_its_pieces_came() -> None:
    reply = ReplyBuilder("mc1", 1, {})
    reply.add_thinking("hm")
    reply.add_text("a")
    reply.add_text("b")
    reply.add_calls([{"index": 0, "id": "c1", "function": {"name": "search", "arguments": "{}"}}])
    assert len(reply.take()) == 3
    assert reply.taken_chunks == 4
    assert reply.take() == []
    assert reply.taken_chunks == 0
