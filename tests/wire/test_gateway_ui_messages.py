"""The UI message stream: as text, and through the stock `ai` package where it is installed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.fake_backends import Suite, gateway_suite
from tests.support.npm_clients import needs_package, run_program
from tests.support.run_events import (
    AFTER_STEPS,
    ANSWER,
    STEPS,
    answer,
    approval_requested,
    completed,
    failed,
    paused,
    proposed,
    started,
)
from tests.support.sse_reader import all_events, events

pytestmark = pytest.mark.asyncio(loop_scope="module")

needs_ai = needs_package("ai")
QUESTION = [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "How long?"}]}]
PAUSE: list[Any] = [started(), proposed("call_1", "run_code"), approval_requested(), paused("call_1")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Suite]:
    async with gateway_suite() as running:
        yield running


@pytest.fixture
def suite(shared: Suite) -> Suite:
    return shared.forget()


async def _ask(suite: Suite, messages: list[dict[str, Any]] = QUESTION, **body: Any) -> list[Any]:
    request = {"id": "chat1", "messages": messages, **body}
    async with suite.http.stream("POST", "/v1/ui/chat", json=request) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
        lines = [event.data for event in await all_events(response)]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_an_answer_is_one_message_with_its_sources(suite: Suite) -> None:
    chunks = await _ask(suite)
    kinds = [chunk["type"] for chunk in chunks if not chunk["type"].startswith("data-")]
    assert kinds[:2] == ["start", "start-step"]
    assert kinds[-2:] == ["finish-step", "finish"]
    assert "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta") == "25 days a year [1]."
    assert next(chunk for chunk in chunks if chunk["type"] == "source-document")["sourceId"] == "1"
    assert chunks[-1]["messageMetadata"]["sources"][0]["title"] == "Leave"
    sent = suite.orchestrator.runs["run1"].request
    assert (sent.history[0].parts[0].text, dict(sent.labels)) == ("How long?", {"ui_chat": "chat1"})


async def test_an_approval_is_asked_in_the_message_and_answered_by_sending_it_back(suite: Suite) -> None:
    suite.orchestrator.script = PAUSE
    suite.orchestrator.after_resume = [answer("42", "m2"), completed("42")]
    chunks = await _ask(suite)
    ask = next(chunk for chunk in chunks if chunk["type"] == "tool-approval-request")
    assert (ask["toolCallId"], ask["approvalDescriptor"]["reason"]) == ("call_1", "compute the sum")
    part = {
        "type": "dynamic-tool",
        "toolName": "run_code",
        "toolCallId": "call_1",
        "state": "approval-responded",
        "input": {},
        "approval": {"id": ask["approvalId"], "approved": False, "reason": "no"},
    }
    assistant = {"id": chunks[0]["messageId"], "role": "assistant", "parts": [part]}
    rest = await _ask(suite, [*QUESTION, assistant])
    assert rest[0]["messageId"] == chunks[0]["messageId"]
    assert suite.orchestrator.resumes[0].decisions[0].approval.comment == "no"
    assert suite.orchestrator.resumes[0].decisions[0].approval.WhichOneof("verdict") == "deny"


async def test_a_failure_is_an_error_chunk(suite: Suite) -> None:
    suite.orchestrator.script = [started(), answer("par"), failed()]
    assert (await _ask(suite))[-1] == {"type": "error", "errorText": "the model went away"}


async def test_a_stream_is_taken_up_again_or_there_is_none(suite: Suite) -> None:
    assert (await suite.http.get("/v1/ui/chat/chat1/stream")).status_code == 204
    suite.orchestrator.script = [started(), answer("25 ")]
    body = {"id": "chat1", "messages": QUESTION}
    async with suite.http.stream("POST", "/v1/ui/chat", json=body) as response:
        await anext(events(response))
    async with suite.http.stream("GET", "/v1/ui/chat/chat1/stream") as response:
        stream = events(response)
        first = json.loads((await anext(stream)).data)
        suite.orchestrator.runs["run1"].append(answer("days"), completed("25 days"))
        rest = [event.data async for event in stream]
    assert first["type"] == "start"
    text = "".join(json.loads(line).get("delta", "") for line in rest[:-1])
    assert text == "25 days"
    assert (await suite.http.get("/v1/ui/chat/chat1/stream")).status_code == 204


async def test_stopping_is_a_request_of_its_own(suite: Suite) -> None:
    suite.orchestrator.script = [started()]
    async with suite.http.stream("POST", "/v1/ui/chat", json={"id": "chat1", "messages": QUESTION}) as response:
        stream = events(response)
        await anext(stream)
        assert (await suite.http.delete("/v1/ui/chat/chat1/stream")).status_code == 204
        rest = [json.loads(event.data)["type"] async for event in stream if event.data != "[DONE]"]
    assert rest[-1] == "abort"


async def test_the_same_messages_join_their_run_and_regenerating_makes_another(suite: Suite) -> None:
    await _ask(suite)
    await _ask(suite)
    assert len(suite.orchestrator.runs) == 1
    await _ask(suite, trigger="regenerate-message")
    assert len(suite.orchestrator.runs) == 2


async def test_earlier_calls_and_answers_are_history(suite: Suite) -> None:
    call = {"type": "dynamic-tool", "toolName": "search", "toolCallId": "c1", "state": "output-available"}
    parts = [{"type": "step-start"}, {**call, "input": {"q": 1}, "output": "3 hits"}, {"type": "text", "text": "25."}]
    again = {"id": "m3", "role": "user", "parts": [{"type": "text", "text": "And now?"}]}
    await _ask(suite, [*QUESTION, {"id": "m2", "role": "assistant", "parts": parts}, again])
    history = suite.orchestrator.runs["run1"].request.history
    assert [message.role for message in history] == [2, 3, 4, 3, 2]
    assert history[1].tool_calls[0].arguments_json == b'{"q":1}'


PROGRAM = """
import { DefaultChatTransport, readUIMessageStream } from "ai";
const transport = new DefaultChatTransport({ api: process.env.API });
const question = { id: "m1", role: "user", parts: [{ type: "text", text: "How long?" }] };
async function send(messages, message) {
  const options = { chatId: "chat1", messages, trigger: "submit-message", messageId: undefined };
  const stream = await transport.sendMessages(options);
  let last = message;
  for await (const step of readUIMessageStream({ message, stream, onError: (e) => { throw e; } })) last = step;
  return last;
}
const first = await send([question]);
console.log(JSON.stringify(first));
const asked = first.parts.find((part) => part.state === "approval-requested");
if (asked) {
  const approval = { ...asked.approval, approved: true };
  const responded = { ...asked, state: "approval-responded", approval };
  const answered = { ...first, parts: first.parts.map((part) => (part === asked ? responded : part)) };
  console.log(JSON.stringify(await send([question, answered], answered)));
}
console.log(JSON.stringify(await transport.reconnectToStream({ chatId: "chat1" })));
"""


@needs_ai
async def test_the_stock_client_reads_answers_and_reconnects(suite: Suite, tmp_path: Path) -> None:
    suite.orchestrator.script = list(ANSWER)
    message, active = await _node(suite, tmp_path)
    assert [part["type"] for part in message["parts"] if part["type"] != "data-notice"] == [
        "step-start",
        "reasoning",
        "source-document",
        "text",
    ]
    assert message["parts"][-1] == {"type": "text", "text": "25 days a year [1].", "state": "done"}
    assert active is None


@needs_ai
async def test_the_stock_client_answers_an_approval(suite: Suite, tmp_path: Path) -> None:
    suite.orchestrator.script = PAUSE
    suite.orchestrator.after_resume = [answer("42", "m2"), completed("42")]
    asked, done, _ = await _node(suite, tmp_path)
    assert next(part for part in asked["parts"] if part["type"] == "dynamic-tool")["state"] == "approval-requested"
    assert done["id"] == asked["id"]
    assert done["parts"][-1]["text"] == "42"
    assert suite.orchestrator.resumes[0].decisions[0].approval.WhichOneof("verdict") == "approve"


@needs_ai
async def test_the_stock_client_keeps_one_part_for_each_step(suite: Suite, tmp_path: Path) -> None:
    suite.orchestrator.script, suite.orchestrator.after_resume = list(STEPS), list(AFTER_STEPS)
    asked, done, _ = await _node(suite, tmp_path)
    parts = {part["type"]: part["data"] for part in asked["parts"] if part["type"] in {"data-route", "data-plan"}}
    assert parts["data-route"]["scores"] == [{"label": "agent", "score": 0.9}, {"label": "small_talk", "score": 0.1}]
    assert [step["step_id"] for step in parts["data-plan"]["steps"]] == ["s1", "s2"]
    steps = {part["id"]: part["data"] for part in asked["parts"] if part["type"] == "data-step"}
    assert steps == {
        "s1": {"title": "Rates", "kind": "research", "state": "completed", "summary": "72"},
        "s2": {"title": "Rates", "kind": "research", "state": "running"},
    }
    later = [part["data"] for part in done["parts"] if part["type"] == "data-step" and part["id"] == "s2"]
    assert later == [{"title": "Rates", "kind": "research", "state": "completed", "summary": "86"}]


async def _node(suite: Suite, folder: Path) -> list[Any]:
    return await run_program(PROGRAM, folder, API=f"{suite.url}/v1/ui/chat")
