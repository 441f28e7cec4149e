"""AG-UI: as text, and through the stock `@ag-ui/client` where it is installed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.fake_backends import Suite, gateway_suite
from tests.support.npm_clients import needs_package, run_program
from tests.support.run_events import (
    AFTER_STEPS,
    STEPS,
    answer,
    approval_requested,
    completed,
    failed,
    paused,
    proposed,
    started,
)
from tests.support.sse_reader import all_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

needs_client = needs_package("@ag-ui/client")
QUESTION = {"id": "m1", "role": "user", "content": "How long?"}
PAUSE: list[Any] = [started(), proposed("call_1", "run_code"), approval_requested(), paused("call_1")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Suite]:
    async with gateway_suite() as running:
        yield running


@pytest.fixture
def suite(shared: Suite) -> Suite:
    return shared.forget()


async def _run(suite: Suite, **body: Any) -> list[Any]:
    request = {"threadId": "t1", "runId": "r1", "messages": [QUESTION], "tools": [], "context": [], **body}
    async with suite.http.stream("POST", "/v1/ag-ui", json=request) as response:
        assert response.status_code == 200, await response.aread()
        return [event.json for event in await all_events(response)]


async def test_an_answer_is_a_run_with_messages(suite: Suite) -> None:
    got = await _run(suite)
    kinds = [event["type"] for event in got if event["type"] != "CUSTOM"]
    assert kinds == [
        "RUN_STARTED",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert (got[-1]["threadId"], got[-1]["runId"], got[-1]["outcome"]) == ("t1", "r1", {"type": "success"})
    assert got[-1]["result"]["sources"][0]["title"] == "Leave"
    assert any(event.get("name") == "proctor.evidence_added" for event in got)


async def test_a_pause_is_an_interrupt_and_resume_answers_it(suite: Suite) -> None:
    suite.orchestrator.script = PAUSE
    suite.orchestrator.after_resume = [answer("42", "m2"), completed("42")]
    got = await _run(suite)
    (interrupt,) = got[-1]["outcome"]["interrupts"]
    assert (interrupt["toolCallId"], interrupt["message"]) == ("call_1", "compute the sum")
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    rest = await _run(suite, runId="r2", resume=[entry])
    assert rest[-1]["outcome"] == {"type": "success"}
    assert suite.orchestrator.resumes[0].decisions[0].approval.WhichOneof("verdict") == "approve"


@pytest.mark.parametrize(
    ("entry", "verdict"),
    [
        ({"status": "cancelled"}, "deny"),
        ({"status": "resolved", "payload": {"approved": False, "comment": "no"}}, "deny"),
        ({"status": "resolved", "payload": "approve"}, "approve"),
        ({"status": "resolved", "payload": {"approved": True, "arguments": {"code": "1"}}}, "edit"),
    ],
)
async def test_each_answer_is_its_verdict(suite: Suite, entry: dict[str, Any], verdict: str) -> None:
    suite.orchestrator.script = PAUSE
    suite.orchestrator.after_resume = [completed("ok")]
    await _run(suite)
    await _run(suite, runId="r2", resume=[{"interruptId": "pause.approval.run1.call_1", **entry}])
    assert suite.orchestrator.resumes[0].decisions[0].approval.WhichOneof("verdict") == verdict


@pytest.mark.parametrize("payload", [None, "42", {"result": 1}, True])
async def test_what_is_no_verdict_decides_nothing(suite: Suite, payload: Any) -> None:
    entry = {"interruptId": "pause.approval.run1.call_1", "status": "resolved", "payload": payload}
    body = {"threadId": "t1", "runId": "r2", "messages": [QUESTION], "tools": [], "context": [], "resume": [entry]}
    response = await suite.http.post("/v1/ag-ui", json=body)
    assert response.status_code == 400
    assert suite.orchestrator.resumes == []


async def test_the_callers_tools_stay_pending_and_come_back_as_messages(suite: Suite) -> None:
    suite.orchestrator.script = [started(), proposed(), completed("", finish="tool_calls")]
    tools = [{"name": "get_weather", "description": "", "parameters": {"type": "object"}}]
    got = await _run(suite, tools=tools)
    assert got[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["call_9"]}
    call = {"id": "call_9", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}
    result = {"id": "m3", "role": "tool", "toolCallId": "call_9", "content": "sunny"}
    messages = [QUESTION, {"id": "m2", "role": "assistant", "toolCalls": [call]}, result]
    await _run(suite, runId="r2", tools=tools, messages=messages)
    history = suite.orchestrator.runs["run2"].request.history
    assert [message.role for message in history] == [2, 3, 4]
    assert (history[2].tool_call_id, history[2].parts[0].text) == ("call_9", "sunny")


async def test_steps_have_names_of_their_own_and_end_with_the_run(suite: Suite) -> None:
    suite.orchestrator.script, suite.orchestrator.after_resume = list(STEPS), list(AFTER_STEPS)
    got = await _run(suite)
    steps = [(event["type"], event["stepName"]) for event in got if event["type"].startswith("STEP_")]
    assert steps == [
        ("STEP_STARTED", "Rates"),
        ("STEP_STARTED", "Rates (s2)"),
        ("STEP_FINISHED", "Rates"),
        ("STEP_FINISHED", "Rates (s2)"),
    ]
    assert got[-1]["outcome"]["type"] == "interrupt"
    custom = {event["name"]: event["value"] for event in got if event["type"] == "CUSTOM"}
    assert custom["proctor.route_decided"]["choice"] == "agent"
    assert [step["title"] for step in custom["proctor.plan_made"]["steps"]] == ["Rates", "Rates"]
    entry = {"interruptId": "pause.approval.run1.call_1", "status": "resolved", "payload": {"approved": True}}
    rest = await _run(suite, runId="r2", resume=[entry])
    assert not [event for event in rest if event["type"].startswith("STEP_")]
    assert rest[-1]["outcome"] == {"type": "success"}


async def test_our_own_options_are_checked(suite: Suite) -> None:
    await _run(suite, forwardedProps={"proctor": {"agent": "handbook", "sources": ["rules"]}})
    assert suite.orchestrator.runs["run1"].request.agent_id == "handbook"
    body = {"threadId": "t1", "runId": "r2", "messages": [QUESTION], "forwardedProps": {"proctor": {"agnet": 1}}}
    assert (await suite.http.post("/v1/ag-ui", json=body)).status_code == 400


async def test_a_failure_is_a_run_error(suite: Suite) -> None:
    suite.orchestrator.script = [started(), answer("par"), failed("MODEL_TIMEOUT")]
    last = (await _run(suite))[-1]
    assert last == {"type": "RUN_ERROR", "message": "the model went away", "code": "MODEL_TIMEOUT"}


PROGRAM = """
import { HttpAgent } from "@ag-ui/client";
const question = { id: "m1", role: "user", content: "How long?" };
const agent = new HttpAgent({ url: process.env.API, threadId: "t1", initialMessages: [question] });
const outcomes = [];
const subscriber = { onRunFinishedEvent: ({ event }) => { outcomes.push(event.outcome); } };
await agent.runAgent({}, subscriber);
const waiting = outcomes[0].interrupts?.[0];
if (waiting) {
  const entry = { interruptId: waiting.id, status: "resolved", payload: { approved: true } };
  await agent.runAgent({ resume: [entry] }, subscriber);
}
console.log(JSON.stringify({ outcomes, messages: agent.messages }));
"""


@needs_client
async def test_the_stock_client_reads_an_answer(suite: Suite, tmp_path: Path) -> None:
    got = await _node(suite, tmp_path)
    assert got["outcomes"] == [{"type": "success"}]
    assert got["messages"][-1]["content"] == "25 days a year [1]."


@needs_client
async def test_the_stock_client_answers_an_interrupt(suite: Suite, tmp_path: Path) -> None:
    suite.orchestrator.script = PAUSE
    suite.orchestrator.after_resume = [answer("42", "m2"), completed("42")]
    got = await _node(suite, tmp_path)
    assert [outcome["type"] for outcome in got["outcomes"]] == ["interrupt", "success"]
    assert got["messages"][-1]["content"] == "42"


@needs_client
async def test_the_stock_client_follows_steps_over_an_interrupt(suite: Suite, tmp_path: Path) -> None:
    suite.orchestrator.script, suite.orchestrator.after_resume = list(STEPS), list(AFTER_STEPS)
    got = await _node(suite, tmp_path)
    assert [outcome["type"] for outcome in got["outcomes"]] == ["interrupt", "success"]
    assert got["messages"][-1]["content"] == "42"


async def _node(suite: Suite, folder: Path) -> Any:
    (got,) = await run_program(PROGRAM, folder, API=f"{suite.url}/v1/ag-ui")
    return got
