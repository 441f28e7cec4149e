"""Responses through the stock `openai` client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.fake_backends import Suite, gateway_suite
from tests.support.openai_program import OpenAIWorker, openai_worker
from tests.support.run_events import (
    ANSWER,
    answer,
    approval_requested,
    client_tool,
    completed,
    failed,
    paused,
    proposed,
    started,
)
from tests.support.sse_reader import all_events, events

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


async def test_the_stock_client_streams_waits_and_retrieves(suite: Suite, stock: OpenAIWorker) -> None:
    program = """
    with client.responses.stream(model="reader", input="How long?", instructions="Be brief.") as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    out(types)
    out(final.output_text)
    whole = client.responses.create(model="agent/handbook", input=[{"role": "user", "content": "How long?"}])
    out([whole.id, whole.status, whole.output_text, whole.usage.total_tokens])
    again = client.responses.retrieve(whole.id)
    out(again.output == whole.output)
    events = list(client.responses.retrieve(whole.id, stream=True))
    rest = list(client.responses.retrieve(whole.id, stream=True, starting_after=events[4].sequence_number))
    out(rest == events[5:])
    """
    types, text, whole, same, continued = await stock.run(suite.url, program)
    assert types[0] == "response.created"
    assert types[-1] == "response.completed"
    assert "response.reasoning_text.delta" in types
    assert text == "25 days a year [1]."
    assert whole == ["resp_run2", "completed", "25 days a year [1].", 19]
    assert same
    assert continued
    first = suite.orchestrator.runs["run1"].request
    assert (first.input[0].text, first.instructions, first.stateless) == ("How long?", "Be brief.", False)


async def test_a_conversation_goes_on_by_the_previous_response(suite: Suite, stock: OpenAIWorker) -> None:
    program = """
    first = client.responses.create(model="reader", input="How long?")
    second = client.responses.create(model="reader", input="And for interns?", previous_response_id=first.id)
    out(second.previous_response_id)
    """
    assert await stock.run(suite.url, program) == ["resp_run1"]
    second = suite.orchestrator.runs["run2"].request
    assert (second.conversation_id, second.input[0].text) == ("c1", "And for interns?")


async def test_what_was_not_stored_cannot_be_continued_by_id(suite: Suite) -> None:
    first = await suite.http.post("/v1/responses", json={"input": "x", "store": False})
    assert suite.orchestrator.runs["run1"].request.stateless
    body = {"input": "y", "previous_response_id": first.json()["id"]}
    second = await suite.http.post("/v1/responses", json=body)
    assert (second.status_code, second.json()["error"]["param"]) == (409, "previous_response_id")


async def test_a_function_call_pauses_and_its_output_goes_on(suite: Suite, stock: OpenAIWorker) -> None:
    suite.orchestrator.script = [
        started(),
        proposed(),
        client_tool(),
        paused("call_9", tool="get_weather", kind="CLIENT_TOOL"),
    ]
    suite.orchestrator.after_resume = [answer("sunny", "m2"), completed("sunny")]
    program = """
    tools = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}]
    first = client.responses.create(model="reader", input="Weather?", tools=tools)
    call = first.output[0]
    out([first.status, call.type, call.name, call.arguments])
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny, 20 C"}
    second = client.responses.create(model="reader", input=[output], previous_response_id=first.id, tools=tools)
    out([second.id, second.output_text])
    out(client.responses.retrieve(second.id).output_text)
    out(client.responses.retrieve(first.id).output[0].call_id == call.call_id)
    """
    first, second, again, kept = await stock.run(suite.url, program)
    assert first == ["completed", "function_call", "get_weather", '{"city":"Oslo"}']
    assert second == ["resp_run1.4", "sunny"]
    assert again == "sunny"
    assert kept
    assert not suite.orchestrator.runs["run1"].request.client_tools_end_run
    decision = suite.orchestrator.resumes[0].decisions[0]
    assert (decision.call_id, decision.client_tool.result[0].text) == ("call_9", "sunny, 20 C")


async def test_whole_inputs_go_round_without_state(suite: Suite, stock: OpenAIWorker) -> None:
    suite.orchestrator.script = [started(), proposed(), completed("", finish="tool_calls")]
    program = """
    items = [{"role": "user", "content": "Weather?"}]
    tools = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": True}]
    first = client.responses.create(model="reader", input=items, tools=tools, store=False)
    items += first.output
    items.append({"type": "function_call_output", "call_id": first.output[0].call_id, "output": "sunny"})
    second = client.responses.create(model="reader", input=items, tools=tools, store=False)
    out(first.output[0].call_id)
    """
    assert await stock.run(suite.url, program) == ["call_9"]
    first, second = (run.request for run in suite.orchestrator.runs.values())
    assert first.client_tools_end_run
    assert [message.role for message in second.history] == [2, 3, 4]
    assert second.history[2].parts[0].text == "sunny"


async def test_an_approval_is_asked_for_and_answered_on_the_wire(suite: Suite, stock: OpenAIWorker) -> None:
    suite.orchestrator.script = [started(), approval_requested(), paused("call_1")]
    suite.orchestrator.after_resume = [answer("42", "m2"), completed("42")]
    program = """
    first = client.responses.create(model="reader", input="Compute")
    ask = first.output[0]
    out([ask.type, ask.name, ask.server_label])
    reply = {"type": "mcp_approval_response", "approval_request_id": ask.id, "approve": True, "reason": "fine"}
    second = client.responses.create(model="reader", input=[reply], previous_response_id=first.id)
    out(second.output_text)
    """
    assert await stock.run(suite.url, program) == [["mcp_approval_request", "run_code", "proctor"], "42"]
    decision = suite.orchestrator.resumes[0].decisions[0]
    assert decision.approval.WhichOneof("verdict") == "approve"
    assert decision.approval.comment == "fine"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "function_call_output", "call_id": "pause.approval.run1.call_1", "output": "approve"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_pause.approval.run1.call_1", "approve": "yes"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_pause.approval.run1.call_1"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_pause.tool.run1.call_1", "approve": True},
        {"type": "mcp_approval_response", "approval_request_id": "other", "approve": True},
    ],
)
async def test_an_answer_of_the_wrong_kind_decides_nothing(suite: Suite, item: dict[str, Any]) -> None:
    response = await suite.http.post("/v1/responses", json={"input": [item]})
    assert response.status_code == 400
    assert suite.orchestrator.resumes == []


async def test_background_answers_at_once_and_is_watched_later(suite: Suite, stock: OpenAIWorker) -> None:
    suite.orchestrator.script = [started()]
    program = """
    first = client.responses.create(model="reader", input="slow", background=True)
    out([first.id, first.status, first.background])
    out(client.responses.retrieve(first.id).status)
    stopped = client.responses.cancel(first.id)
    out(stopped.status)
    """
    assert await stock.run(suite.url, program) == [["resp_run1", "in_progress", True], "in_progress", "cancelled"]


async def test_leaving_a_background_stream_leaves_the_run(suite: Suite) -> None:
    suite.orchestrator.script = [started(), answer("x")]
    body = {"input": "slow", "background": True, "stream": True}
    async with suite.http.stream("POST", "/v1/responses", json=body) as response:
        stream = events(response)
        seen = [await anext(stream) for _ in range(3)]
    suite.orchestrator.runs["run1"].append(answer("y"), completed("xy"))
    number = json.loads(seen[-1].data)["sequence_number"]
    path = f"/v1/responses/resp_run1?stream=true&starting_after={number}"
    async with suite.http.stream("GET", path) as response:
        rest = [event.json for event in await all_events(response)]
    assert [frame["sequence_number"] for frame in rest] == list(range(number + 1, number + 1 + len(rest)))
    assert rest[-1]["response"]["output"][0]["content"][0]["text"] == "xy"
    assert not suite.orchestrator.runs["run1"].cancelled


async def test_leaving_an_ordinary_stream_cancels_the_run(suite: Suite) -> None:
    suite.orchestrator.script = [started(), answer("x")]
    async with suite.http.stream("POST", "/v1/responses", json={"input": "slow", "stream": True}) as response:
        await anext(events(response))
    async with asyncio.timeout(5):
        while not suite.orchestrator.runs["run1"].cancelled:
            await asyncio.sleep(0.01)


async def test_a_failed_run_is_a_failed_response(suite: Suite, stock: OpenAIWorker) -> None:
    suite.orchestrator.script = [started(), answer("par"), failed("MODEL_TIMEOUT")]
    program = """
    failed = client.responses.create(model="reader", input="x")
    out([failed.status, failed.error.code, failed.error.proctor["reason"], failed.output_text])
    def kind(**options):
        try:
            client.responses.create(model="reader", **options)
        except openai.APIError as error:
            return [type(error).__name__, error.code]
    out(kind(input=[]))
    out(kind(input="x", tools=[{"type": "web_search"}]))
    out(kind(input="x", previous_response_id="resp_none"))
    out(kind(input=[{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]))
    """
    assert await stock.run(suite.url, program) == [
        ["failed", "server_error", "MODEL_TIMEOUT", "par"],
        ["BadRequestError", "invalid_request"],
        ["BadRequestError", "invalid_request"],
        ["NotFoundError", "run_not_found"],
        ["BadRequestError", "invalid_request"],
    ]


async def test_a_form_is_parsed_by_the_stock_client(suite: Suite, stock: OpenAIWorker) -> None:
    suite.orchestrator.script = [started(), answer("aloud"), completed('{"days":25}')]
    program = """
    from pydantic import BaseModel
    class Leave(BaseModel):
        days: int
    out(client.responses.parse(model="reader", input="x", text_format=Leave).output_parsed.days)
    """
    assert await stock.run(suite.url, program) == [25]
    assert json.loads(suite.orchestrator.runs["run1"].request.output.json_schema)["properties"]["days"]


async def test_integers_of_any_size_come_back(suite: Suite) -> None:
    parameters = {"type": "object", "properties": {"n": {"maximum": 2**70}}}
    body = {"input": "x", "tools": [{"type": "function", "name": "f", "parameters": parameters}]}
    response = await suite.http.post("/v1/responses", json=body)
    assert response.json()["tools"][0]["parameters"] == parameters


async def test_every_sampling_member_reaches_the_run(suite: Suite) -> None:
    suite.orchestrator.script = list(ANSWER)
    body = {
        "input": "x",
        "temperature": 0,
        "top_p": 0.5,
        "max_output_tokens": 7,
        "max_tool_calls": 2,
        "reasoning": {"effort": "low"},
        "metadata": {"team": "hr"},
        "tool_choice": {"type": "function", "name": "f"},
        "include": ["reasoning.encrypted_content"],
        "truncation": "auto",
    }
    response = (await suite.http.post("/v1/responses", json=body)).json()
    assert response["proctor"]["ignored"] == ["include", "truncation"]
    assert (response["temperature"], response["metadata"]) == (0, {"team": "hr"})
    sent = suite.orchestrator.runs["run1"].request
    assert sent.sampling.HasField("temperature")
    assert (sent.sampling.max_output_tokens, sent.sampling.reasoning_effort) == (7, "low")
    assert (sent.budget.tool_calls, sent.tool_choice, dict(sent.labels)) == (2, "f", {"team": "hr"})
