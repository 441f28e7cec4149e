"""One clock: span, attempts, metrics and log tell the same numbers as the reply."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from opentelemetry.trace import StatusCode

from services.chassis import names
from services.orchestrator.domain.messages import Sampling
from services.orchestrator.models.errors import ModelFailed
from services.orchestrator.models.ports import Purpose
from tests.support.platform import recorded_telemetry
from tests.support.upstream import Upstream
from tests.support.upstream_composed import answer, composed
from tests.support.upstream_models import SEARCH, ask, system, user
from tests.support.upstream_script import Say, Turn, Wait, call, fail, say


def toml(url: str) -> str:
    return f'[models.m]\nupstream_name = "scripted"\nbase_url = "{url}"\nprice = {{ input = 1, output = 2 }}\n'


async def test_a_call_is_one_span_with_its_attempts_below_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = recorded_telemetry()
    caplog.set_level(logging.INFO)
    turns = (fail(500), say("Hello", " you", usage=(12, 5, 4, 1)))
    async with (
        Upstream(*turns) as upstream,
        composed(tmp_path, toml(upstream.base_url), telemetry=told.telemetry) as models,
    ):
        reply = (await answer(models, ask(conversation_id="c9"))).reply
    (span,) = told.spans("chat m")
    attributes = span.attributes
    assert attributes is not None
    assert attributes[names.GEN_AI_REQUEST_MODEL] == "scripted"
    assert attributes[names.GEN_AI_PROVIDER_NAME] == "openai"
    assert attributes[names.GEN_AI_CONVERSATION_ID] == "c9"
    assert attributes[names.LLM_PURPOSE] == Purpose.ANSWER.value
    assert attributes[names.LLM_RETRIES] == 1 == reply.timing.attempts - 1
    assert attributes[names.GEN_AI_USAGE_INPUT] == 12
    assert attributes[names.GEN_AI_USAGE_CACHE_READ] == 4
    assert attributes[names.GEN_AI_RESPONSE_FINISH_REASONS] == ("stop",)
    assert reply.timing.time_to_first_token is not None
    assert attributes[names.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK] == pytest.approx(
        reply.timing.time_to_first_token.total_seconds(), abs=1e-5
    )
    attempts = [told.spans(f"chat attempt {number}")[0] for number in (1, 2)]
    assert all(attempt.parent is not None and attempt.parent.span_id == span.context.span_id for attempt in attempts)
    assert attempts[0].status.status_code is StatusCode.ERROR
    assert attempts[1].status.status_code is StatusCode.UNSET
    line = next(record for record in caplog.records if getattr(record, "event", "") == names.EVENT_MODEL_CALL)
    assert line.__dict__["retries"] == 1
    assert line.__dict__["time_to_first_chunk"] == attributes[names.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK]
    assert reply.usage.cost_micros == 22


async def test_metrics_count_the_call_and_its_tokens(tmp_path: Path) -> None:
    told = recorded_telemetry()
    async with (
        Upstream(say("Hello")) as upstream,
        composed(tmp_path, toml(upstream.base_url), telemetry=told.telemetry) as models,
    ):
        await answer(models, ask())
    for instrument in (names.MODEL_CALL_DURATION, names.MODEL_TIME_TO_FIRST_CHUNK):
        (point,) = told.points(instrument.name)
        assert point.count == 1  # type: ignore[attr-defined]
    tokens = {p.attributes[names.GEN_AI_TOKEN_TYPE]: p.sum for p in told.points(names.MODEL_TOKEN_USAGE.name)}  # type: ignore[attr-defined]
    assert tokens == {"input": 12, "output": 5}


async def test_metrics_tell_cost_cache_and_where_the_time_went(tmp_path: Path) -> None:
    told = recorded_telemetry()
    turns = (fail(500), say("Hello", " you", usage=(12, 5, 4, 1)))
    async with (
        Upstream(*turns) as upstream,
        composed(tmp_path, toml(upstream.base_url), telemetry=told.telemetry) as models,
    ):
        timing = (await answer(models, ask())).reply.timing
    (cost,) = told.points(names.MODEL_COST.name)
    assert cost.value == pytest.approx(22e-6)  # type: ignore[attr-defined]
    assert cost.attributes == {  # type: ignore[attr-defined]
        names.GEN_AI_PROVIDER_NAME: "openai",
        names.GEN_AI_REQUEST_MODEL: "scripted",
        names.LLM_PURPOSE: "answer",
    }
    (cached,) = told.points(names.MODEL_CACHED_INPUT.name)
    assert cached.value == 4  # type: ignore[attr-defined]
    (failed,) = told.points(names.MODEL_ATTEMPTS_FAILED.name)
    assert (failed.value, failed.attributes[names.ERROR_TYPE]) == (1, "MODEL_FAILED")  # type: ignore[attr-defined]
    (stall,) = told.points(names.MODEL_STALL.name)
    assert stall.sum == timing.longest_stall.total_seconds()  # type: ignore[attr-defined]
    phases = {p.attributes[names.LLM_PHASE]: p.sum for p in told.points(names.MODEL_PHASE_DURATION.name)}  # type: ignore[attr-defined]
    assert set(phases) == {"queue", "retry", "first_chunk", "generation"}
    assert sum(phases.values()) == pytest.approx((timing.queued + timing.total).total_seconds(), abs=1e-5)
    # The attempt that failed and the wait behind it come before the attempt whose first piece was seen.
    assert phases["retry"] > 0
    assert timing.time_to_first_token is not None
    assert phases["retry"] + phases["first_chunk"] == pytest.approx(
        timing.time_to_first_token.total_seconds(), abs=1e-5
    )


async def test_a_failure_is_an_error_with_its_reason(tmp_path: Path) -> None:
    told = recorded_telemetry()
    async with (
        Upstream(default=fail(500)) as upstream,
        composed(tmp_path, toml(upstream.base_url), telemetry=told.telemetry) as models,
    ):
        with pytest.raises(ModelFailed):
            await answer(models, ask())
    (span,) = told.spans("chat m")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes[names.ERROR_TYPE] == "MODEL_FAILED"
    assert len([one for one in told.spans() if one.name.startswith("chat attempt")]) == 3


async def test_a_cancelled_call_ends_its_span_as_cancelled(tmp_path: Path) -> None:
    told = recorded_telemetry()
    turn = Turn(steps=(Say(pieces=("Half",)), Wait()))
    async with (
        Upstream(turn) as upstream,
        composed(tmp_path, toml(upstream.base_url), telemetry=told.telemetry) as models,
    ):
        async with aclosing(models.chat.stream(ask())) as events:
            await anext(events)
        await asyncio.wait_for((await upstream.next_request()).gone.wait(), 5)
    (span,) = told.spans("chat m")
    assert span.attributes is not None
    assert span.attributes[names.ERROR_TYPE] == "cancelled"


async def test_neither_key_nor_prompt_nor_answer_is_in_spans_or_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = recorded_telemetry()
    caplog.set_level(logging.DEBUG)
    environ = {"OPENAI_API_KEY": "sk-very-secret"}
    async with (
        Upstream(say("the-answer-text")) as upstream,
        composed(tmp_path, toml(upstream.base_url), telemetry=told.telemetry, environ=environ) as models,
    ):
        await answer(models, ask("the-question-text"))
    everything = "".join(span.to_json() for span in told.spans())
    everything += "".join(str(record.__dict__) for record in caplog.records if record.name.startswith("services"))
    for secret in ("sk-very-secret", "the-question-text", "the-answer-text"):
        assert secret not in everything


async def test_content_is_on_the_span_only_for_those_who_ask(tmp_path: Path) -> None:
    told = recorded_telemetry(content=True)
    request = ask(
        messages=(system("Be brief."), user("the-question-text")),
        tools=(SEARCH,),
        sampling=Sampling(temperature=0.5, max_output_tokens=64),
    )
    async with (
        Upstream(call("search", '{"query": "x", "reason": "to look"}')) as upstream,
        composed(tmp_path, toml(upstream.base_url), telemetry=told.telemetry) as models,
    ):
        await answer(models, request)
    (span,) = told.spans("chat m")
    attributes = span.attributes or {}
    assert json.loads(str(attributes[names.GEN_AI_SYSTEM_INSTRUCTIONS])) == [{"type": "text", "content": "Be brief."}]
    assert json.loads(str(attributes[names.GEN_AI_INPUT_MESSAGES])) == [
        {"role": "user", "parts": [{"type": "text", "content": "the-question-text"}]}
    ]
    (said,) = json.loads(str(attributes[names.GEN_AI_OUTPUT_MESSAGES]))
    (wanted,) = said["parts"]
    assert (wanted["type"], wanted["name"], wanted["arguments"]) == ("tool_call", "search", {"query": "x"})
    assert said["finish_reason"] == "tool_calls"
    assert (attributes[names.GEN_AI_REQUEST_TEMPERATURE], attributes[names.GEN_AI_REQUEST_MAX_TOKENS]) == (0.5, 64)
    assert attributes[names.SERVER_ADDRESS] == "127.0.0.1"
    assert attributes[names.SERVER_PORT] == urlsplit(upstream.base_url).port
