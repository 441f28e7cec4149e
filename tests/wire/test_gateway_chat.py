"""Chat Completions through the stock `openai` client, and what that client does not show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from services.chassis.errors import Overloaded
from tests.support.fake_backends import Suite, gateway_suite
from tests.support.openai_program import OpenAIWorker, openai_worker
from tests.support.run_events import (
    answer,
    approval_requested,
    completed,
    failed,
    paused,
    proposed,
    started,
)
from tests.support.sse_reader import all_events, events

QUESTION = [{"role": "user", "content": "How long?"}]


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Suite]:
    async with gateway_suite() as running:
        yield running


@pytest.fixture
def suite(shared: Suite) -> Suite:
    return shared.forget()


@pytest.fixture(scope="module")
def stock() -> Iterator[OpenAIWorker]:
    with openai_worker() as worker:
        yield worker


async def _stream(suite: Suite, **body: Any) -> list[str]:
    request = {"model": "reader", "messages": QUESTION, "stream": True, **body}
    async with suite.http.stream("POST", "/v1/chat/completions", json=request) as response:
        assert response.status_code == 200, await response.aread()
        return [event.data for event in await all_events(response)]


async def test_the_stock_client_streams_and_waits_for_an_answer(suite: Suite, stock: OpenAIWorker) -> None:
    program = """
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How long?"}]
    stream = client.chat.completions.create(
        model="reader", messages=messages, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    out("".join(c.choices[0].delta.content or "" for c in chunks if c.choices))
    out(sorted({c.id for c in chunks}))
    out(chunks[-1].usage.total_tokens)
    whole = client.chat.completions.create(
        model="agent/handbook", messages=messages, temperature=0, max_tokens=9, seed=3, stop="END",
        extra_body={"proctor": {"sources": ["rules"], "footnotes": True}})
    out(whole)
    out([m.id for m in client.models.list().data])
    """
    text, ids, tokens, whole, models = await stock.run(suite.url, program)
    assert text == "25 days a year [1]."
    assert ids == ["chatcmpl-run1"]
    assert tokens == 19
    assert whole["choices"][0]["message"]["content"] == "25 days a year [^1].\n\n[^1]: Leave, Holidays"
    assert whole["proctor"]["sources"][0]["cited"] is True
    assert models == ["reader", "agent/handbook"]
    first, second = (run.request for run in suite.orchestrator.runs.values())
    assert (first.model, first.instructions, first.history[0].parts[0].text) == ("reader", "Be brief.", "How long?")
    assert (second.model, second.agent_id, list(second.sources)) == ("", "handbook", ["rules"])
    assert second.sampling.HasField("temperature")
    assert (second.sampling.max_output_tokens, second.sampling.seed, list(second.sampling.stop)) == (9, 3, ["END"])


async def test_the_callers_tools_go_round_without_state(suite: Suite, stock: OpenAIWorker) -> None:
    suite.orchestrator.script = [started(), proposed(), completed("", finish="tool_calls")]
    program = """
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    messages = [{"role": "user", "content": "Weather?"}]
    first = client.chat.completions.create(model="reader", messages=messages, tools=tools, tool_choice="required")
    out(first.choices[0].finish_reason)
    call = first.choices[0].message.tool_calls[0]
    messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    second = client.chat.completions.create(model="reader", messages=messages, tools=tools)
    out(call)
    """
    reason, call = await stock.run(suite.url, program)
    assert reason == "tool_calls"
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
    first, second = (run.request for run in suite.orchestrator.runs.values())
    assert first.client_tools_end_run
    assert (first.client_tools[0].name, first.tool_choice) == ("get_weather", "required")
    assert [message.role for message in second.history] == [2, 3, 4]
    assert second.history[1].tool_calls[0].arguments_json == b'{"city":"Oslo"}'
    assert (second.history[2].tool_call_id, second.history[2].parts[0].text) == ("call_9", "sunny")


async def test_an_approval_is_a_tool_call_and_its_answer_continues_the_run(suite: Suite, stock: OpenAIWorker) -> None:
    suite.orchestrator.script = [started(), answer("I will compute."), approval_requested(), paused("call_1")]
    suite.orchestrator.after_resume = [answer("42", "m2"), completed("42")]
    program = """
    messages = [{"role": "user", "content": "Compute"}]
    first = client.chat.completions.create(model="reader", messages=messages)
    call = first.choices[0].message.tool_calls[0]
    out([first.choices[0].finish_reason, call.function.name, json.loads(call.function.arguments)["tool"]])
    answer = {"role": "tool", "tool_call_id": call.id, "content": '{"decision": "approve"}'}
    messages += [first.choices[0].message, answer]
    second = client.chat.completions.create(model="reader", messages=messages)
    out(second.choices[0].message.content)
    messages += [second.choices[0].message, {"role": "user", "content": "And now?"}]
    client.chat.completions.create(model="reader", messages=messages)
    """
    first, content = await stock.run(suite.url, program)
    assert first == ["tool_calls", "proctor_approval", "run_code"]
    assert content == "42"
    assert suite.orchestrator.resumes[0].run_id == "run1"
    assert suite.orchestrator.resumes[0].decisions[0].approval.WhichOneof("verdict") == "approve"
    later = suite.orchestrator.runs["run2"].request.history
    assert [message.parts[0].text for message in later] == ["Compute", "I will compute.", "42", "And now?"]
    assert all(not message.tool_calls for message in later)


@pytest.mark.parametrize("result", ["42", "", "ok", '{"result": 42}', '{"decision": "edit"}', "[1]"])
async def test_a_tool_result_is_no_answer_to_an_approval(suite: Suite, result: str) -> None:
    messages = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "tool_call_id": "pause.approval.run1.call_1", "content": result},
    ]
    response = await suite.http.post("/v1/chat/completions", json={"model": "reader", "messages": messages})
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert suite.orchestrator.resumes == []


async def test_waiting_for_approval_keeps_the_stream_open(suite: Suite) -> None:
    suite.orchestrator.script = [started(), approval_requested(), paused("call_1")]
    body = {"model": "reader", "messages": QUESTION, "stream": True, "proctor": {"approvals": "wait"}}
    async with suite.http.stream("POST", "/v1/chat/completions", json=body) as response:
        stream = events(response)
        await anext(stream)
        suite.orchestrator.runs["run1"].append(answer("ok"), completed("ok"))
        rest = [event.data async for event in stream]
    assert json.loads(rest[0])["choices"][0]["delta"] == {"content": "ok"}
    assert rest[-1] == "[DONE]"


async def test_done_always_comes_last(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await _stream(suite))[-1] == "[DONE]"
    suite.orchestrator.script = [started(), answer("par"), failed()]
    lines = await _stream(suite)
    assert lines[-1] == "[DONE]"
    assert json.loads(lines[-2])["error"]["code"] == "model_stream_broken"
    suite.orchestrator.breaks = [2, *[0] * 200]
    monkeypatch.setattr(suite.gateway.parts.streams, "_backoff", (0.0,))
    lines = await _stream(suite)
    assert lines[-1] == "[DONE]"
    assert json.loads(lines[-2])["error"]["code"] == "unavailable"


async def test_the_stock_client_raises_its_own_errors(suite: Suite, stock: OpenAIWorker) -> None:
    suite.orchestrator.script = [started(), answer("par"), failed("CONTEXT_OVERFLOW")]
    program = """
    messages = [{"role": "user", "content": "x"}]
    def kind(f):
        try:
            f()
        except openai.APIError as error:
            return [type(error).__name__, error.code]
    create = client.chat.completions.create
    out(kind(lambda: create(model="reader", messages=messages)))
    out(kind(lambda: list(create(model="reader", messages=messages, stream=True))))
    out(kind(lambda: create(model="reader", messages=messages, n=2)))
    out(kind(lambda: create(model="reader", messages=messages, logprobs=True)))
    out(kind(lambda: create(model="reader", messages=[{"role": "assistant", "content": "x"}])))
    out(kind(lambda: client.models.retrieve("gpt-0")))
    """
    assert await stock.run(suite.url, program) == [
        ["BadRequestError", "context_overflow"],
        ["APIError", "context_overflow"],
        ["BadRequestError", "invalid_request"],
        ["BadRequestError", "invalid_request"],
        ["BadRequestError", "invalid_request"],
        ["NotFoundError", "model_not_found"],
    ]


async def test_more_than_one_answer_is_refused_by_name(suite: Suite) -> None:
    response = await suite.http.post("/v1/chat/completions", json={"messages": QUESTION, "n": 3})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "n")
    assert "one answer" in response.json()["error"]["message"]


async def test_overload_is_told_with_retry_after(suite: Suite) -> None:
    suite.orchestrator.refuse = Overloaded("too many runs", retry_after=7)
    response = await suite.http.post("/v1/chat/completions", json={"messages": QUESTION})
    assert (response.status_code, response.headers["retry-after"]) == (503, "7")
    assert response.json()["error"]["type"] == "server_error"


async def test_a_form_is_asked_for_and_sent_whole(suite: Suite, stock: OpenAIWorker) -> None:
    suite.orchestrator.script = [started(), answer("Let me see"), completed('{"days":25}')]
    program = """
    from pydantic import BaseModel
    class Leave(BaseModel):
        days: int
    parsed = client.chat.completions.parse(
        model="reader", messages=[{"role": "user", "content": "x"}], response_format=Leave)
    out(parsed.choices[0].message.parsed.days)
    """
    assert await stock.run(suite.url, program) == [25]
    sent = suite.orchestrator.runs["run1"].request
    assert json.loads(sent.output.json_schema)["properties"]["days"]["type"] == "integer"
    assert sent.output.name == "Leave"


async def test_images_and_files_reach_the_run(suite: Suite) -> None:
    content = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "image_url", "image_url": {"url": "https://pictures.example/1.png"}},
        {"type": "file", "file": {"file_id": "f" * 32, "filename": "a.pdf"}},
    ]
    await _stream(suite, messages=[{"role": "user", "content": content}])
    parts = suite.orchestrator.runs["run1"].request.history[0].parts
    assert (parts[1].image.inline, parts[1].image.media_type) == (b"hi", "image/png")
    assert parts[2].image.url == "https://pictures.example/1.png"
    assert (parts[3].file.artifact_id, parts[3].file.name) == ("f" * 32, "a.pdf")


@pytest.mark.parametrize("url", ["", "ftp://x", "data:image/png;base64,***", "data:image/png,abc", 7])
async def test_a_broken_image_is_refused(suite: Suite, url: object) -> None:
    content = [{"type": "image_url", "image_url": {"url": url}}]
    response = await suite.http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": content}]})
    assert response.status_code == 400


async def test_leaving_a_chat_stream_cancels_its_run(suite: Suite) -> None:
    suite.orchestrator.script = [started(), answer("x")]
    body = {"messages": QUESTION, "stream": True}
    async with suite.http.stream("POST", "/v1/chat/completions", json=body) as response:
        await anext(events(response))
    await _until_cancelled(suite)


async def test_leaving_while_waiting_for_the_whole_answer_cancels_its_run(suite: Suite) -> None:
    suite.orchestrator.script = [started(), answer("x")]
    request = asyncio.create_task(suite.http.post("/v1/chat/completions", json={"messages": QUESTION}))
    async with asyncio.timeout(5):
        while "run1" not in suite.orchestrator.runs:
            await asyncio.sleep(0.01)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    await _until_cancelled(suite)


async def test_a_run_that_can_be_joined_again_is_not_cancelled(suite: Suite) -> None:
    suite.orchestrator.script = [started()]
    body = {"messages": QUESTION, "stream": True}
    headers = {"Idempotency-Key": "k"}
    async with suite.http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
        await anext(events(response))
    suite.orchestrator.runs["run1"].append(answer("x"), completed("x"))
    async with suite.http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
        assert [event.data for event in await all_events(response)][-1] == "[DONE]"
    assert len(suite.orchestrator.runs) == 1
    assert not suite.orchestrator.runs["run1"].cancelled


async def test_members_without_effect_are_named(suite: Suite) -> None:
    response = await suite.http.post(
        "/v1/chat/completions", json={"messages": QUESTION, "parallel_tool_calls": False, "presence_penalty": 1}
    )
    assert response.json()["proctor"]["ignored"] == ["parallel_tool_calls", "presence_penalty"]


async def _until_cancelled(suite: Suite) -> None:
    async with asyncio.timeout(5):
        while not suite.orchestrator.runs["run1"].cancelled:
            await asyncio.sleep(0.01)
