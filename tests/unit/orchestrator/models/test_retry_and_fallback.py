"""Who answers when a model fails, and what becomes of text that was shown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.chassis.clock import SystemClock
from services.orchestrator.domain.messages import MediaPart, Message, Role, TextPart
from services.orchestrator.domain.run import OnRetraction
from services.orchestrator.models.admission import Admitted
from services.orchestrator.models.errors import (
    ContextOverflow,
    ModelError,
    ModelFailed,
    ModelNotFound,
    ModelRateLimited,
    ModelStreamBroken,
    ModelUnauthorized,
)
from services.orchestrator.models.limits import Limits
from services.orchestrator.models.ports import ModelReply, Retraction, TextPiece
from services.orchestrator.models.retry import Retrying, RetryPolicy
from services.orchestrator.models.timing import CallClock
from tests.support.clock import FakeClock
from tests.support.upstream import Upstream
from tests.support.upstream_composed import answer, composed
from tests.support.upstream_models import Heard, adapter, ask, converse, hear
from tests.support.upstream_script import Cut, Say, Turn, Wait, fail, say

HALF = Turn(steps=(Say(pieces=("Half an answer",)), Cut()))


def toml(first: str, second: str = "", *, window: int = 0, vision: bool = False) -> str:
    """Return a catalogue of `m`, and of `spare` behind it when `second` is given."""
    capabilities = '["tools", "vision"]' if vision else '["tools"]'
    text = f'[models.m]\nbase_url = "{first}"\nwindow = {window}\n'
    if second:
        text += f'fallbacks = ["spare"]\n[models.spare]\nbase_url = "{second}"\ncapabilities = {capabilities}\n'
    return text


@pytest.mark.parametrize("first", [fail(429, retry_after="0"), fail(500), Turn(steps=(Cut(),))])
async def test_a_failure_before_the_first_token_is_tried_again(first: Turn, tmp_path: Path) -> None:
    async with (
        Upstream(first, first, say("Third time")) as upstream,
        composed(tmp_path, toml(upstream.base_url)) as models,
    ):
        heard = await answer(models, ask())
        assert len(upstream.requests) == 3
    assert heard.reply.text == "Third time"
    assert heard.reply.timing.attempts == 3


async def test_it_is_tried_twice_more_and_no_further(tmp_path: Path) -> None:
    async with Upstream(default=fail(500)) as upstream, composed(tmp_path, toml(upstream.base_url)) as models:
        with pytest.raises(ModelFailed) as caught:
            await answer(models, ask())
        assert len(upstream.requests) == 3
    assert caught.value.timing is not None
    assert caught.value.timing.attempts == 3


async def test_what_cannot_help_is_not_tried_again(tmp_path: Path) -> None:
    async with Upstream(default=fail(401)) as upstream, composed(tmp_path, toml(upstream.base_url)) as models:
        with pytest.raises(ModelUnauthorized):
            await answer(models, ask())
        assert len(upstream.requests) == 1


async def test_backoff_grows_and_retry_after_goes_before() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    turns = (fail(500), fail(429, retry_after="7"), say("ok"))
    async with Upstream(*turns) as upstream, adapter(upstream.base_url) as model:
        retrying = Retrying(model, RetryPolicy(first_delay=1.0), Limits(), sleep, lambda: 1.0)
        await converse(retrying)
    assert waits == [1.0, 7.0]


async def test_a_retry_after_too_long_to_wait_for_is_told_instead() -> None:
    async with Upstream(fail(429, retry_after="3600")) as upstream, adapter(upstream.base_url) as model:
        with pytest.raises(ModelRateLimited) as caught:
            await converse(Retrying(model, RetryPolicy(), Limits(), asyncio.sleep, lambda: 1.0))
    assert caught.value.retry_after == 3600


async def test_another_model_answers_when_the_first_fails(tmp_path: Path) -> None:
    async with (
        Upstream(default=fail(500)) as down,
        Upstream(say("From the spare")) as spare,
        composed(tmp_path, toml(down.base_url, spare.base_url)) as models,
    ):
        heard = await answer(models, ask())
    assert heard.reply.text == "From the spare"
    assert heard.reply.model == "spare"
    assert heard.reply.fallback_from == "m"
    assert heard.reply.timing.attempts == 4


async def test_emit_withdraws_a_broken_answer_and_starts_again_on_the_fallback(tmp_path: Path) -> None:
    async with (
        Upstream(HALF) as broken,
        Upstream(say("Whole")) as spare,
        composed(tmp_path, toml(broken.base_url, spare.base_url)) as models,
    ):
        heard = await answer(models, ask(on_retraction=OnRetraction.EMIT))
    assert [type(event) for event in heard.events] == [TextPiece, Retraction, TextPiece, ModelReply]
    assert heard.reply.text == "Whole"


async def test_emit_without_a_fallback_starts_again_once_on_the_same_model(tmp_path: Path) -> None:
    async with Upstream(HALF, say("Whole")) as upstream, composed(tmp_path, toml(upstream.base_url)) as models:
        heard = await answer(models, ask())
        assert len(upstream.requests) == 2
    assert heard.reply.text == "Whole"
    assert heard.reply.fallback_from == ""


async def test_a_second_break_is_a_failure(tmp_path: Path) -> None:
    heard = Heard()
    async with Upstream(default=HALF) as upstream, composed(tmp_path, toml(upstream.base_url)) as models:
        with pytest.raises(ModelStreamBroken):
            await answer(models, ask(), heard)
        assert len(upstream.requests) == 2
    assert len(heard.of(Retraction)) == 1


async def test_fail_keeps_the_partial_text_and_asks_nobody_else(tmp_path: Path) -> None:
    heard = Heard()
    async with Upstream(HALF) as broken, Upstream(say("never")) as spare:
        async with composed(tmp_path, toml(broken.base_url, spare.base_url)) as models:
            with pytest.raises(ModelStreamBroken) as caught:
                await answer(models, ask(on_retraction=OnRetraction.FAIL), heard)
        assert spare.requests == []
    assert caught.value.partial_text == heard.text == "Half an answer"
    assert heard.of(Retraction) == []


async def test_hold_shows_only_the_answer_that_is_whole(tmp_path: Path) -> None:
    async with (
        Upstream(HALF) as broken,
        Upstream(say("Who", "le")) as spare,
        composed(tmp_path, toml(broken.base_url, spare.base_url)) as models,
    ):
        heard = await answer(models, ask(on_retraction=OnRetraction.HOLD))
    assert heard.text == heard.reply.text == "Whole"
    assert heard.of(Retraction) == []


async def test_a_model_whose_window_is_too_small_is_passed_over(tmp_path: Path) -> None:
    async with Upstream() as small, Upstream(say("I can hold that")) as large:
        async with composed(tmp_path, toml(small.base_url, large.base_url, window=1000)) as models:
            heard = await answer(models, ask("word " * 2000))
        assert small.requests == []
    assert heard.reply.fallback_from == ""
    assert heard.reply.model == "spare"


async def test_a_prompt_that_fits_no_window_is_an_overflow(tmp_path: Path) -> None:
    async with Upstream() as upstream, composed(tmp_path, toml(upstream.base_url, window=1000)) as models:
        with pytest.raises(ContextOverflow, match="holds 1000 tokens"):
            await answer(models, ask("word " * 2000))


async def test_an_overflow_told_by_the_server_goes_to_the_fallback(tmp_path: Path) -> None:
    async with (
        Upstream(fail(400, code="context_length_exceeded")) as small,
        Upstream(say("ok")) as large,
        composed(tmp_path, toml(small.base_url, large.base_url)) as models,
    ):
        heard = await answer(models, ask())
    assert heard.reply.model == "spare"


async def test_a_question_with_a_picture_goes_to_a_model_that_sees(tmp_path: Path) -> None:
    picture = MediaPart(media_type="image/png", is_image=True, inline=b"\x89PNG")
    message = Message(role=Role.USER, parts=(TextPart(text="What is this?"), picture))
    async with Upstream() as blind, Upstream(say("A cat")) as seeing:
        async with composed(tmp_path, toml(blind.base_url, seeing.base_url, vision=True)) as models:
            heard = await answer(models, ask(messages=(message,)))
        assert blind.requests == []
        content = seeing.requests[0].messages[0]["content"]
    assert heard.reply.text == "A cat"
    assert content[1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="


async def test_an_unknown_model_is_not_found(tmp_path: Path) -> None:
    async with composed(tmp_path, "") as models:
        with pytest.raises(ModelNotFound, match="'nope'"):
            await answer(models, ask(model="nope"))


async def test_waiting_for_a_place_is_timed_apart() -> None:
    clock = FakeClock()
    more = asyncio.Event()
    async with Upstream(Turn(steps=(Wait(event=more), Say(pieces=("a",)))), say("b")) as upstream:
        async with adapter(upstream.base_url, clock=clock) as model:
            admitted = Admitted(model, 1, clock)
            first = asyncio.ensure_future(hear(admitted.stream(ask(), CallClock(clock))))
            await upstream.next_request()
            second = asyncio.ensure_future(hear(admitted.stream(ask(), CallClock(clock))))
            await asyncio.sleep(0)
            clock.advance(5.0)
            more.set()
            await first
            waited = (await second).reply.timing
        assert len(upstream.requests) == 2
    assert waited.queued.total_seconds() == 5.0
    assert waited.total.total_seconds() == 0.0
    assert waited.time_to_first_token is not None
    assert waited.time_to_first_token.total_seconds() == 0.0


async def test_each_second_of_a_call_is_told_once() -> None:
    clock = FakeClock()
    call = CallClock(clock)
    clock.advance(3.0)
    assert call.phases(call.timing()) == {"queue": 3.0}
    call.queued_for(3.0)
    call.begin("a")
    clock.advance(1.0)
    call.end("MODEL_FAILED")
    clock.advance(0.5)
    call.begin("b")
    assert call.phases(call.timing()) == {"queue": 3.0, "retry": 1.5, "first_chunk": 0.0, "generation": 0.0}
    clock.advance(2.0)
    call.arrived()
    call.token()
    clock.advance(7.0)
    assert call.phases(call.timing()) == {"queue": 3.0, "retry": 1.5, "first_chunk": 2.0, "generation": 7.0}


async def test_a_retry_never_begins_past_the_cap() -> None:
    clock = FakeClock()
    async with Upstream(fail(500)) as upstream, adapter(upstream.base_url, clock=clock) as model:
        call = CallClock(clock)
        clock.advance(299.9)
        with pytest.raises(ModelError):
            await hear(Retrying(model, RetryPolicy(first_delay=1.0), Limits()).stream(ask(), call))
        assert len(upstream.requests) == 1


async def test_a_real_clock_measures_what_happened() -> None:
    async with Upstream(say("a", "b")) as upstream, adapter(upstream.base_url) as model:
        timing = (await converse(model, clock=SystemClock())).reply.timing
    assert timing.time_to_first_token is not None
    assert 0 < timing.time_to_first_token.total_seconds() <= timing.total.total_seconds()
