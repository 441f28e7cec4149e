"""The stock `openai` client before the real orchestrator, with a scripted model behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.openai_program import OpenAIWorker, openai_worker
from tests.support.suite import Suite
from tests.support.upstream import Upstream
from tests.support.upstream_script import call, say

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = '[{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]'


@pytest.fixture(scope="module")
def stock() -> Iterator[OpenAIWorker]:
    with openai_worker() as worker:
        yield worker


async def test_a_streamed_completion_equals_the_whole_one(
    running: Suite, upstream: Upstream, stock: OpenAIWorker
) -> None:
    upstream.script(say("Twenty-five ", "days."), say("Twenty-five ", "days."))
    program = """
    messages = [{"role": "user", "content": "How long?"}]
    stream = client.chat.completions.create(
        model="default", messages=messages, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    out("".join(c.choices[0].delta.content or "" for c in chunks if c.choices))
    out(chunks[-1].usage.total_tokens > 0)
    out(client.chat.completions.create(model="default", messages=messages).choices[0].message.content)
    """
    assert await stock.run(running.base_url, program) == ["Twenty-five days.", True, "Twenty-five days."]


async def test_the_callers_functions_go_round_in_chat(running: Suite, upstream: Upstream, stock: OpenAIWorker) -> None:
    upstream.script(call("get_weather", '{"city": "Oslo"}'), say("Sunny."))
    program = f"""
    tools = {TOOLS}
    messages = [{{"role": "user", "content": "Weather in Oslo?"}}]
    first = client.chat.completions.create(model="default", messages=messages, tools=tools)
    choice = first.choices[0]
    out([choice.finish_reason, choice.message.tool_calls[0].function.name])
    out(json.loads(choice.message.tool_calls[0].function.arguments))
    result = {{"role": "tool", "tool_call_id": choice.message.tool_calls[0].id, "content": "sunny, 20 C"}}
    second = client.chat.completions.create(model="default", messages=[*messages, choice.message, result], tools=tools)
    out(second.choices[0].message.content)
    """
    got = await stock.run(running.base_url, program)
    assert got == [["tool_calls", "get_weather"], {"city": "Oslo"}, "Sunny."]
    assert "sunny, 20 C" in str(upstream.requests[-1].messages)


async def test_a_function_call_of_a_response_is_answered_by_id(
    running: Suite, upstream: Upstream, stock: OpenAIWorker
) -> None:
    upstream.script(call("get_weather", '{"city": "Oslo"}'), say("Sunny."), say("Because."))
    program = """
    tools = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}]
    first = client.responses.create(model="default", input="Weather in Oslo?", tools=tools)
    (asked,) = [item for item in first.output if item.type == "function_call"]
    answer = {"type": "function_call_output", "call_id": asked.call_id, "output": "sunny, 20 C"}
    second = client.responses.create(model="default", input=[answer], previous_response_id=first.id, tools=tools)
    out(second.output_text)
    third = client.responses.create(model="default", input="Why?", previous_response_id=second.id)
    out(third.output_text)
    out(client.responses.retrieve(first.id).output == first.output)
    """
    assert await stock.run(running.base_url, program) == ["Sunny.", "Because.", True]


async def test_a_form_is_kept(running: Suite, upstream: Upstream, stock: OpenAIWorker) -> None:
    upstream.script(say('{"days": 25}'), say('{"days": 25}'))
    program = """
    from pydantic import BaseModel
    class Leave(BaseModel):
        days: int
    messages = [{"role": "user", "content": "x"}]
    chat = client.chat.completions.parse(model="default", messages=messages, response_format=Leave)
    out(chat.choices[0].message.parsed.days)
    out(client.responses.parse(model="default", input="x", text_format=Leave).output_parsed.days)
    """
    assert await stock.run(running.base_url, program) == [25, 25]


async def test_a_model_that_fails_is_an_api_error(running: Suite, upstream: Upstream, stock: OpenAIWorker) -> None:
    program = """
    try:
        client.chat.completions.create(model="no-such-model", messages=[{"role": "user", "content": "x"}])
    except openai.APIStatusError as error:
        out([error.status_code, error.code])
    """
    assert await stock.run(running.base_url, program) == [[404, "model_not_found"]]
