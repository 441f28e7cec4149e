"""What a model call does when the endpoint fails, stalls, breaks off or sends garbage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from functools import partial

import pytest

from services.chassis.clock import SystemClock
from services.orchestrator.models.errors import (
    ContextOverflow,
    ModelError,
    ModelFailed,
    ModelRateLimited,
    ModelRefused,
    ModelStalled,
    ModelStreamBroken,
    ModelTimeout,
    ModelUnauthorized,
    ModelUnreachable,
)
from services.orchestrator.models.limits import Limits
from services.orchestrator.models.ports import TextPiece
from services.orchestrator.models.timing import CallClock
from tests.support.clock import FakeClock
from tests.support.upstream import Upstream
from tests.support.upstream_models import FakeTimers, Heard, adapter, ask, converse, hear
from tests.support.upstream_script import Cut, Raw, Reach, Say, Turn, Wait, Wire, fail, say


@pytest.mark.parametrize(
    ("turn", "kind", "retryable"),
    [
        (fail(401, "bad key"), ModelUnauthorized, False),
        (fail(403, "not yours"), ModelUnauthorized, False),
        (fail(429, "slow down"), ModelRateLimited, True),
        (fail(429, "pay first", code="insufficient_quota"), ModelRefused, False),
        (fail(500, "oops"), ModelFailed, True),
        (fail(503, "busy"), ModelFailed, True),
        (fail(404, "no such model"), ModelRefused, False),
        (fail(400, "bad field"), ModelRefused, False),
        (fail(400, "too long", code="context_length_exceeded"), ContextOverflow, False),
        (fail(400, "This model's maximum context length is 8192 tokens"), ContextOverflow, False),
        (fail(400, "the request exceeds the available context size"), ContextOverflow, False),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_an_http_error_is_a_typed_error_with_the_server_s_words(
    turn: Turn, kind: type[ModelError], retryable: bool
) -> None:
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        with pytest.raises(kind) as caught:
            await converse(model)
    assert caught.value.retryable is retryable
    assert not caught.value.after_first_token
    assert turn.error is not None
    assert turn.error["message"] in caught.value.message


async def test_retry_after_is_read_from_seconds_and_from_a_date() -> None:
    clock = FakeClock()
    turns = (fail(429, retry_after="3"), fail(503, retry_after="Tue, 01 Jan 2030 12:00:07 GMT"))
    async with Upstream(*turns) as upstream, adapter(upstream.base_url, clock=clock) as model:
        waits = []
        for _ in turns:
            with pytest.raises(ModelError) as caught:
                await converse(model)
            waits.append(caught.value.retry_after)
    assert waits == [3.0, 7.0]


async def test_no_server_is_unreachable() -> None:
    async with Upstream() as upstream:
        gone = upstream.base_url
    async with adapter(gone) as model:
        with pytest.raises(ModelUnreachable, match="check its base URL"):
            await converse(model)


async def test_a_cut_before_the_first_token_may_be_retried() -> None:
    async with Upstream(Turn(steps=(Cut(),))) as upstream, adapter(upstream.base_url) as model:
        with pytest.raises(ModelUnreachable) as caught:
            await converse(model)
    assert caught.value.retryable
    assert not caught.value.after_first_token


async def test_a_cut_after_the_first_token_keeps_the_partial_text() -> None:
    turn = Turn(steps=(Say(pieces=("Half an ", "answer")), Cut()))
    heard = Heard()
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        with pytest.raises(ModelStreamBroken) as caught:
            await hear(model.stream(ask(), CallClock(SystemClock())), heard)
    assert caught.value.after_first_token
    assert caught.value.partial_text == heard.text == "Half an answer"


async def test_a_stream_that_ends_politely_without_an_end_is_cut_too() -> None:
    turn = say("Half", wire=Wire(finish_chunk=False, done=False, usage_chunk=False))
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        with pytest.raises(ModelStreamBroken, match="before the reply was complete"):
            await converse(model)


async def test_a_connection_lost_after_the_finish_reason_is_a_complete_reply() -> None:
    finish = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
    turn = Turn(steps=(Say(pieces=("Whole",)), Raw(content=finish), Cut()))
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model)
    assert heard.reply.text == "Whole"


@pytest.mark.parametrize(
    "garbage", [b"data: {nonsense\n\n", b"data: 7\n\n", b'data: {"choices": [3]}\n\n', b"data: \xff\xfe\n\n"], ids=repr
)
async def test_garbage_breaks_the_stream_instead_of_leaving_a_hole(garbage: bytes) -> None:
    turn = Turn(steps=(Say(pieces=("Before",)), Raw(content=garbage), Say(pieces=("after",))))
    heard = Heard()
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        with pytest.raises(ModelStreamBroken):
            await hear(model.stream(ask(), CallClock(SystemClock())), heard)
    assert heard.text == "Before"


@pytest.mark.parametrize("noise", [b"data: \n\n", b"\n\n\n", b": ping\n\n", b"event: ping\n\n", b'data: {"a": 1}\n\n'])
async def test_noise_that_is_no_chunk_of_the_reply_is_passed_over(noise: bytes) -> None:
    turn = Turn(steps=(Say(pieces=("one",)), Raw(content=noise), Say(pieces=(" two",))))
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model)
    assert heard.reply.text == "one two"


async def test_a_server_that_never_stops_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.models.openai_model.MAX_REPLY_CHARACTERS", 1000)
    turn = Turn(steps=(Say(pieces=("word " * 100,) * 10), Wait()))
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        with pytest.raises(ModelStreamBroken, match="more than 1000 characters"):
            await converse(model)


async def test_an_error_inside_the_stream_is_the_server_s_error() -> None:
    error = b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'
    turn = Turn(steps=(Say(pieces=("Half",)), Raw(content=error)))
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        with pytest.raises(ModelFailed, match="out of memory") as caught:
            await converse(model)
    assert caught.value.after_first_token


async def test_silence_longer_than_the_gap_limit_is_a_stall() -> None:
    clock = FakeClock()
    timers = FakeTimers(clock)
    silent = asyncio.Event()
    turn = Turn(steps=(Say(pieces=("Half",)), Reach(event=silent), Wait()))
    async with Upstream(turn) as upstream, adapter(upstream.base_url, clock=clock, later=timers.later) as model:
        heard = Heard()
        call = CallClock(clock)
        hearing = asyncio.ensure_future(hear(model.stream(ask(), call), heard))
        request = await upstream.next_request()
        await silent.wait()
        await until(lambda: heard.text == "Half")
        timers.advance(179.0)
        await asyncio.sleep(0)
        assert not hearing.done()
        timers.advance(1.5)
        with pytest.raises(ModelStalled, match="180 s") as caught:
            await hearing
        await request.gone.wait()
    assert caught.value.after_first_token
    assert caught.value.partial_text == "Half"
    assert timers.pending == 0


async def test_the_cap_on_the_whole_holds_while_chunks_trickle() -> None:
    clock = FakeClock()
    timers = FakeTimers(clock)
    steps: list[Say | Wait] = []
    gates = [asyncio.Event() for _ in range(4)]
    for number, gate in enumerate(gates):
        steps += [Wait(event=gate), Say(pieces=(f"{number} ",))]
    turn = Turn(steps=(*steps, Wait()))
    async with Upstream(turn) as upstream, adapter(upstream.base_url, clock=clock, later=timers.later) as model:
        heard = Heard()
        hearing = asyncio.ensure_future(hear(model.stream(ask(), CallClock(clock)), heard))
        await upstream.next_request()
        for number, gate in enumerate(gates[:2]):
            timers.advance(140.0)
            gate.set()
            await until(partial(_has_pieces, heard, number + 1))
        timers.advance(21.0)
        with pytest.raises(ModelTimeout, match="300 s"):
            await hearing
    assert heard.text == "0 1 "


async def test_cancelling_stops_the_upstream_call_at_once() -> None:
    silent = asyncio.Event()
    turn = Turn(steps=(Say(pieces=("Half",)), Reach(event=silent), Wait()))
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        hearing = asyncio.ensure_future(hear(model.stream(ask(), CallClock(SystemClock()))))
        request = await upstream.next_request()
        await silent.wait()
        started = time.monotonic()
        hearing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hearing
        await request.gone.wait()
        took = time.monotonic() - started
    # 10 ms is the aim; a busy machine is given room, a call that runs on would be seen all the same.
    assert took < 0.25


async def test_closing_the_iterator_stops_the_upstream_call() -> None:
    turn = Turn(steps=(Say(pieces=("Half",)), Wait()))
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        call = CallClock(SystemClock())
        async with aclosing(model.stream(ask(), call)) as events:
            first = await anext(events)
            request = await upstream.next_request()
        await request.gone.wait()
    assert first == TextPiece(text="Half")
    assert call.attempts[0].error == "cancelled"


async def test_a_slow_consumer_is_no_stall() -> None:
    clock = FakeClock()
    timers = FakeTimers(clock)
    more = asyncio.Event()
    turn = Turn(steps=(Say(pieces=("one",)), Wait(event=more), Say(pieces=(" two",))))
    limits = Limits(gap=timedelta(seconds=10))
    heard = Heard()
    async with (
        Upstream(turn) as upstream,
        adapter(upstream.base_url, clock=clock, later=timers.later, limits=limits) as model,
        aclosing(model.stream(ask(), CallClock(clock))) as events,
    ):
        heard.events.append(await anext(events))
        timers.advance(60.0)
        more.set()
        await hear(events, heard)
    assert heard.reply.text == "one two"


def _has_pieces(heard: Heard, number: int) -> bool:
    return len(heard.of(TextPiece)) == number


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until `condition` holds."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)
