"""The adapter reads every form in which servers send a reply."""

from __future__ import annotations

import json

import pytest

from services.orchestrator.domain.messages import Message, Role, Sampling, TextPart, ToolCall, Usage
from services.orchestrator.models.ports import TextPiece
from tests.support.upstream import Upstream
from tests.support.upstream_models import CLOCK_TOOL, SEARCH, adapter, ask, converse, system, user
from tests.support.upstream_script import (
    CallFraming,
    Raw,
    Reasoning,
    Say,
    Think,
    Turn,
    Wire,
    call,
    calls,
    say,
)

ARGUMENTS = '{"query": "travel 出差", "limit": 9007199254740993}'


async def test_text_streams_in_order_and_ends_with_the_reply() -> None:
    async with (
        Upstream(say("Hello", ", ", "world", usage=(7, 3, 2, 0))) as upstream,
        adapter(upstream.base_url) as model,
    ):
        heard = await converse(model)
    assert heard.text == heard.reply.text == "Hello, world"
    assert heard.reply.finish_reason == "stop"
    assert heard.reply.usage == Usage(input_tokens=7, output_tokens=3, cached_input_tokens=2)
    assert heard.reply.timing.attempts == 1
    assert heard.reply.timing.time_to_first_token is not None


@pytest.mark.parametrize("form", list(Reasoning))
async def test_reasoning_is_kept_apart_in_every_form(form: Reasoning) -> None:
    turn = Turn(steps=(Think(pieces=("Let me ", "see."), form=form), Say(pieces=("Yes.", " It is."))))
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model)
    assert heard.thinking == heard.reply.reasoning == "Let me see."
    assert heard.text == heard.reply.text == "Yes. It is."


async def test_think_tags_cut_across_chunks_are_still_tags() -> None:
    turn = say("<th", "ink>a < b", "</thi", "nk>\n\nThe answer", " has <think> in it")
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model)
    assert heard.reply.reasoning == "a < b"
    assert heard.reply.text == "The answer has <think> in it"


@pytest.mark.parametrize("framing", list(CallFraming))
async def test_a_call_is_read_in_every_framing(framing: CallFraming) -> None:
    async with Upstream(call("search", ARGUMENTS, framing)) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model, ask(tools=(SEARCH,)))
    (made,) = heard.reply.tool_calls
    assert made.name == "search"
    assert made.arguments_json == '{"limit":9007199254740993,"query":"travel 出差"}'.encode()
    assert heard.reply.finish_reason == "tool_calls"
    assert set(heard.fragments) == {made.call_id}
    assert json.loads(heard.fragments[made.call_id]) == json.loads(ARGUMENTS)


@pytest.mark.parametrize("framing", list(CallFraming))
async def test_two_calls_stay_two_in_every_framing(framing: CallFraming) -> None:
    turn = calls(("search", '{"query": "a"}'), ("search", '{"query": "b"}'), framing=framing)
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model, ask(tools=(SEARCH,)))
    assert heard.arguments() == [{"query": "a"}, {"query": "b"}]
    assert len({made.call_id for made in heard.reply.tool_calls}) == 2


@pytest.mark.parametrize(
    "wire",
    [
        Wire(newline=b"\r\n"),
        Wire(newline=b"\r"),
        Wire(comments=True, empty_chunks=True),
        Wire(role_chunk=False, usage_chunk=False),
        Wire(slice_bytes=1),
        Wire(slice_bytes=3, newline=b"\r\n", comments=True),
        Wire(finish_chunk=False),
        Wire(done=False),
    ],
    ids=str,
)
async def test_every_shape_of_a_complete_stream_gives_the_same_text(wire: Wire) -> None:
    async with Upstream(say("答案是", " 42 €", wire=wire)) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model)
    assert heard.reply.text == "答案是 42 €"
    assert heard.reply.finish_reason == "stop"


async def test_a_finish_reason_of_stop_with_calls_is_tool_calls() -> None:
    async with Upstream(call("search", ARGUMENTS, finish="stop")) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model, ask(tools=(SEARCH,)))
    assert heard.reply.finish_reason == "tool_calls"


async def test_usage_is_estimated_and_marked_when_the_server_tells_none() -> None:
    turn = say("one two three four", wire=Wire(usage_chunk=False))
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model)
    assert heard.reply.usage.estimated
    assert heard.reply.usage.output_tokens > 0


async def test_a_server_that_does_not_stream_is_read_too() -> None:
    async with Upstream(say("All at once")) as upstream, adapter(upstream.base_url) as model:
        upstream.ignore_stream = True
        heard = await converse(model)
    assert heard.reply.text == "All at once"


@pytest.mark.parametrize("written", ["{bad", "null", "[1]", '{"query": NaN}', '{"a": ' * 3000], ids=lambda t: t[:14])
async def test_arguments_that_are_no_json_object_are_malformed_not_lost(written: str) -> None:
    async with Upstream(call("search", written, CallFraming.WHOLE)) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model, ask(tools=(SEARCH,)))
    (made,) = heard.reply.tool_calls
    assert made.arguments_json == b""
    assert made.malformed_arguments == written


async def test_empty_arguments_are_an_empty_object() -> None:
    async with Upstream(call("current_time", "")) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model, ask(tools=(CLOCK_TOOL,)))
    assert heard.reply.tool_calls[0].arguments_json == b"{}"


async def test_the_reason_is_asked_for_and_taken_out() -> None:
    turn = call("search", '{"reason": "To find it.", "query": "x"}')
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model, ask(tools=(SEARCH,)))
        parameters = upstream.requests[0].body["tools"][0]["function"]["parameters"]
    assert list(parameters["properties"]) == ["reason", "query"]
    assert parameters["required"] == ["reason", "query"]
    (made,) = heard.reply.tool_calls
    assert made.arguments_json == b'{"query":"x"}'
    assert made.reason == "To find it."


async def test_call_ids_are_ours_and_the_same_for_the_same_call() -> None:
    twice = (call("search", ARGUMENTS), call("search", ARGUMENTS))
    async with Upstream(*twice) as upstream, adapter(upstream.base_url) as model:
        first = await converse(model, ask(tools=(SEARCH,)))
        again = await converse(model, ask(tools=(SEARCH,)))
    assert first.reply.tool_calls[0].call_id == again.reply.tool_calls[0].call_id != "call_a"


async def test_the_request_carries_sampling_tools_and_history() -> None:
    made = ToolCall(call_id="c1", name="search", arguments_json=b'{"query":"x"}', reason="To find it.")
    messages = (
        system("Be brief."),
        user("Find x"),
        _assistant(made),
        _result("c1", "found x"),
    )
    sampling = Sampling(temperature=0.5, top_p=0.9, max_output_tokens=99, stop=("END",), seed=7)
    async with Upstream(say("ok")) as upstream, adapter(upstream.base_url) as model:
        await converse(model, ask(messages=messages, tools=(SEARCH,), sampling=sampling, tool_choice="search"))
        body = upstream.requests[0].body
    assert body["temperature"] == 0.5
    assert body["max_tokens"] == 99
    assert body["stop"] == ["END"]
    assert body["seed"] == 7
    assert body["tool_choice"] == {"type": "function", "function": {"name": "search"}}
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool"]
    written = json.loads(body["messages"][2]["tool_calls"][0]["function"]["arguments"])
    assert written == {"reason": "To find it.", "query": "x"}
    assert body["messages"][3]["tool_call_id"] == "c1"


async def test_history_with_reused_and_unanswered_call_ids_is_made_acceptable() -> None:
    made = ToolCall(call_id="c1", name="search", arguments_json=b"{}")
    messages = (user("a"), _assistant(made), _result("c1", "one"), user("b"), _assistant(made), user("c"))
    async with Upstream(say("ok")) as upstream, adapter(upstream.base_url) as model:
        await converse(model, ask(messages=messages, tools=(SEARCH,)))
        sent = upstream.requests[0].messages
    asked = [call["id"] for message in sent for call in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert asked == answered
    assert len(set(asked)) == 2


async def test_text_that_arrives_together_is_one_piece_behind_the_first_token() -> None:
    chunk = 'data: {"choices": [{"index": 0, "delta": {"content": "tok "}}]}\n\n'
    turn = Turn(steps=(Raw(content=(chunk * 50).encode()),))
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model)
    assert heard.reply.text == "tok " * 50
    assert heard.of(TextPiece) == [TextPiece(text="tok "), TextPiece(text="tok " * 49)]


async def test_the_connection_serves_the_next_call_again() -> None:
    async with Upstream(say("a"), say("b")) as upstream, adapter(upstream.base_url) as model:
        await converse(model)
        await converse(model)
        assert upstream.connections_made == 1


def _assistant(made: ToolCall) -> Message:
    return Message(role=Role.ASSISTANT, tool_calls=(made,))


def _result(call_id: str, text: str) -> Message:
    return Message(role=Role.TOOL, parts=(TextPart(text=text),), tool_call_id=call_id, tool_name="search")
