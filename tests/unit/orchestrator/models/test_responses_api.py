"""The Responses API: its requests, its events, and going on from a stored response."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from services.chassis.settings import Secret
from services.orchestrator.domain.messages import (
    MediaPart,
    Message,
    OutputFormat,
    Role,
    Sampling,
    TextPart,
    ToolCall,
    Usage,
    text_message,
)
from services.orchestrator.models.chain import chain_key
from services.orchestrator.models.errors import ModelFailed, ModelStreamBroken
from services.orchestrator.models.responses_dialect import ResponsesDialect
from tests.support.upstream import Upstream
from tests.support.upstream_models import SEARCH, Heard, adapter, ask, converse, settings_for, system, user
from tests.support.upstream_script import Cut, Raw, Request, Say, Think, Turn, Wire, call, calls, fail, say


async def respond(*turns: Turn, store: bool = False, **fields: Any) -> tuple[Heard, list[Request]]:
    async with (
        Upstream(*turns) as upstream,
        adapter(upstream.base_url, dialect=ResponsesDialect(), store=store) as model,
    ):
        return await converse(model, ask(**fields)), upstream.requests


async def test_text_thinking_and_usage_are_read() -> None:
    turn = Turn(steps=(Think(pieces=("Hm. ", "Yes.")), Say(pieces=("Hello", " you"))), usage=(9, 4, 3, 2))
    heard, requests = await respond(turn)
    assert (heard.thinking, heard.text) == ("Hm. Yes.", "Hello you")
    assert heard.reply.usage == Usage(input_tokens=9, output_tokens=4, cached_input_tokens=3, reasoning_tokens=2)
    assert heard.reply.finish_reason == "stop"
    assert requests[0].path.endswith("/responses")
    assert requests[0].body["store"] is False


async def test_calls_are_read_with_their_reason_taken_out() -> None:
    turn = calls(("search", '{"reason": "To see.", "query": "a"}'), ("search", '{"query": "b"}'))
    heard, requests = await respond(turn, tools=(SEARCH,), tool_choice="search")
    assert heard.arguments() == [{"query": "a"}, {"query": "b"}]
    assert heard.reply.tool_calls[0].reason == "To see."
    assert heard.reply.finish_reason == "tool_calls"
    assert requests[0].body["tools"][0]["name"] == "search"
    assert requests[0].body["tool_choice"] == {"type": "function", "name": "search"}


async def test_the_request_carries_instructions_history_sampling_and_form() -> None:
    made = ToolCall(call_id="c1", name="search", arguments_json=b'{"query":"x"}')
    picture = MediaPart(media_type="image/png", is_image=True, inline=b"x")
    messages = (
        system("Be brief."),
        Message(role=Role.USER, parts=(TextPart(text="Look"), picture)),
        Message(role=Role.ASSISTANT, parts=(TextPart(text="Searching"),), tool_calls=(made,)),
        Message(role=Role.TOOL, parts=(TextPart(text="found"),), tool_call_id="c1", tool_name="search"),
    )
    schema = OutputFormat(json_schema=b'{"type":"object"}', name="x")
    sampling = Sampling(temperature=0.1, max_output_tokens=50, reasoning_effort="low")
    _, requests = await respond(say("ok"), messages=messages, sampling=sampling, output=schema)
    body = requests[0].body
    assert body["instructions"] == "Be brief."
    kinds = [item.get("type") or item["role"] for item in body["input"]]
    assert kinds == ["user", "assistant", "function_call", "function_call_output"]
    assert [part["type"] for part in body["input"][0]["content"]] == ["input_text", "input_image"]
    assert (body["temperature"], body["max_output_tokens"], body["reasoning"]) == (0.1, 50, {"effort": "low"})
    assert body["text"]["format"]["type"] == "json_schema"


async def test_a_cut_by_the_output_limit_is_told_as_length() -> None:
    heard, _ = await respond(say("Half", finish="length"))
    assert heard.reply.finish_reason == "length"


async def test_a_stream_without_its_end_is_broken() -> None:
    with pytest.raises(ModelStreamBroken):
        await respond(say("Half", wire=Wire(finish_chunk=False)))
    with pytest.raises(ModelStreamBroken):
        await respond(Turn(steps=(Say(pieces=("Half",)), Cut())))


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "message": "out of memory", "code": "server_error"},
        {"type": "response.failed", "response": {"error": {"message": "out of memory"}}},
    ],
)
async def test_an_error_event_is_the_server_s_error(event: dict[str, Any]) -> None:
    turn = Turn(steps=(Raw(content=f"data: {json.dumps(event)}\n\n".encode()),))
    with pytest.raises(ModelFailed, match="out of memory"):
        await respond(turn)


async def test_a_server_that_does_not_stream_is_read_too() -> None:
    async with (
        Upstream(call("search", '{"query": "x"}')) as upstream,
        adapter(upstream.base_url, dialect=ResponsesDialect()) as model,
    ):
        upstream.ignore_stream = True
        heard = await converse(model, ask(tools=(SEARCH,)))
    assert heard.arguments() == [{"query": "x"}]


def later(response_id: str) -> tuple[Message, ...]:
    """Return a conversation whose first answer came as `response_id`."""
    answered = replace(text_message(Role.ASSISTANT, "One."), response_id=response_id)
    return (system("Be brief."), user("First?"), answered, user("Second?"))


async def test_a_conversation_goes_on_from_the_stored_response() -> None:
    async with (
        Upstream(say("One.", response_id="resp_1"), say("Two.")) as upstream,
        adapter(upstream.base_url, dialect=ResponsesDialect(), store=True) as model,
    ):
        first = await converse(model, ask("First?", conversation_id="c1", tenant="t"))
        messages = later(first.reply.response_id)
        await converse(model, ask(messages=messages, conversation_id="c1", tenant="t"))
        body = upstream.requests[1].body
    assert body["previous_response_id"] == "resp_1"
    assert [item["content"][0]["text"] for item in body["input"]] == ["Second?"]
    assert body["instructions"] == "Be brief."


@pytest.mark.parametrize(
    "other", [{"conversation_id": "c2"}, {"tenant": "u"}, {"user": "eve"}, {"conversation_id": ""}]
)
async def test_another_chain_gets_the_full_input(other: dict[str, str]) -> None:
    async with (
        Upstream(say("One.", response_id="resp_1"), say("Two.")) as upstream,
        adapter(upstream.base_url, dialect=ResponsesDialect(), store=True) as model,
    ):
        same = {"conversation_id": "c1", "tenant": "t"}
        first = await converse(model, ask("First?", **same))
        await converse(model, ask(messages=later(first.reply.response_id), **{**same, **other}))
        body = upstream.requests[1].body
    assert "previous_response_id" not in body
    assert len(body["input"]) == 3


def test_the_chain_breaks_with_model_endpoint_and_key() -> None:
    base = settings_for("http://a/v1")
    keys = {
        chain_key(changed, ask(conversation_id="c"))
        for changed in (
            base,
            replace(base, upstream_name="other"),
            replace(base, base_url="http://b/v1"),
            replace(base, api_key=Secret("other")),
        )
    }
    assert len(keys) == 4


@pytest.mark.parametrize("status", [400, 404])
async def test_a_broken_chain_falls_back_to_the_full_input(status: int) -> None:
    lost = fail(status, "Previous response with id 'resp_1' not found.", code="previous_response_not_found")
    async with (
        Upstream(say("One.", response_id="resp_1"), lost, say("Two.")) as upstream,
        adapter(upstream.base_url, dialect=ResponsesDialect(), store=True) as model,
    ):
        first = await converse(model, ask("First?", conversation_id="c1"))
        heard = await converse(model, ask(messages=later(first.reply.response_id), conversation_id="c1"))
        bodies = [request.body for request in upstream.requests]
    assert heard.reply.text == "Two."
    assert [len(body["input"]) for body in bodies] == [1, 1, 3]
    assert "previous_response_id" not in bodies[2]


async def test_results_of_tools_are_sent_in_full() -> None:
    made = ToolCall(call_id="c1", name="search", arguments_json=b"{}")
    messages = (
        user("First?"),
        Message(role=Role.ASSISTANT, tool_calls=(made,), response_id="whatever.resp_1"),
        Message(role=Role.TOOL, parts=(TextPart(text="found"),), tool_call_id="c1", tool_name="search"),
    )
    _, requests = await respond(say("ok"), store=True, messages=messages, conversation_id="c1")
    assert "previous_response_id" not in requests[0].body
    assert len(requests[0].body["input"]) == 3
