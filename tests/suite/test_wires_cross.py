"""A pending approval is one thing whatever wire shows it: each wire answers what another one opened."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.duration_pb2 import Duration
from websockets.asyncio.client import connect

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import run_service_pb2 as pb
from proctor.orchestrator.v1.run_service_pb2_grpc import RunServiceStub
from services.gateway.bodies.responses import APPROVAL_PREFIX
from tests.support.suite import Suite, suite
from tests.support.suite_steps import ask, follow, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import call, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUESTION = "What is 6 times 7?"
ANSWER = "It is 42."
USER = {"role": "user", "content": QUESTION}
AG_BODY = {"threadId": "t1", "messages": [{"id": "m1", **USER}], "tools": [], "context": []}
UI_QUESTION = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": QUESTION}]}
# How a wire begins a run and returns the id of its pause, and how it answers one and returns the text that follows.
Open = Callable[[Suite], Awaitable[str]]
Reply = Callable[[Suite, str], Awaitable[str]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream) -> AsyncIterator[Suite]:
    async with suite(model=upstream.base_url, PROCTOR_ORCHESTRATOR_PARKED_EVERY="0.2") as started:
        yield started


def parts_of(pause: str) -> tuple[str, str]:
    """Return the run and the call that a pause is of."""
    _, _, run_id, call_id = pause.split(".", 3)
    return run_id, call_id


async def data_of(running: Suite, url: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the JSON of every `data:` line of a stream."""
    async with running.http.stream("POST", url, json=body) as response:
        lines = [line.removeprefix("data: ") async for line in response.aiter_lines() if line.startswith("data: {")]
        assert response.status_code == 200, lines
    return [json.loads(line) for line in lines]


async def posted(running: Suite, url: str, body: dict[str, Any]) -> Any:
    response = await running.http.post(url, json=body)
    assert response.status_code == 200, response.text
    return response.json()


# --- Native server-sent events, and the record itself


async def open_native(running: Suite) -> str:
    events = await ask(running, QUESTION, hold=0)
    (request,) = of(events, "approval_requested")
    return f"pause.approval.{events[0]['run_id']}.{request['call_id']}"


async def answer_native(running: Suite, pause: str) -> str:
    run_id, call_id = parts_of(pause)
    body = {"decisions": [{"call_id": call_id, "approval": {"verdict": "approve"}}]}
    async with aclosing(follow(running, "POST", f"/v1/runs/{run_id}/resume", body=body)) as stream:
        return str(of([event async for event in stream], "run_completed")[0]["text"])


async def answer_record(running: Suite, pause: str) -> str:
    run_id, call_id = parts_of(pause)
    pending = (await running.http.get(f"/v1/runs/{run_id}")).json()["pending"]
    (approval_id,) = [one["approval_id"] for one in pending if one["call_id"] == call_id]
    await posted(running, f"/v1/approvals/{approval_id}/decision", {"decision": "approve"})
    return str(of(await watch(running, run_id), "run_completed")[0]["text"])


# --- WebSocket


async def socket_events(running: Suite, **message: Any) -> list[dict[str, Any]]:
    url = running.base_url.replace("http", "ws") + "/v1/ws"
    got = []
    async with connect(url, proxy=None) as socket:
        await socket.send(json.dumps({"id": "a", **message}))
        async for text in socket:
            told = json.loads(text)
            assert told["type"] != "error", told
            if told["type"] == "done":
                break
            if told["type"] == "event":
                got.append(told["event"])
    return got


async def open_socket(running: Suite) -> str:
    got = await socket_events(running, type="start", body={"input": QUESTION, "hold": 0})
    (asked,) = [event["approval_requested"] for event in got if "approval_requested" in event]
    return f"pause.approval.{got[0]['run_id']}.{asked['call_id']}"


async def answer_socket(running: Suite, pause: str) -> str:
    run_id, call_id = parts_of(pause)
    body = {"decisions": [{"call_id": call_id, "approval": {"verdict": "approve"}}]}
    got = await socket_events(running, type="resume", run_id=run_id, body=body)
    return str(got[-1]["run_completed"]["text"])


# --- gRPC


async def open_grpc(running: Suite) -> str:
    request = pb.StartRunRequest(
        request_id=f"cross-{id(running)}", input=[agent_pb2.Part(text=QUESTION)], hold=Duration(seconds=0)
    )
    stub = RunServiceStub(running.channels["orchestrator"])
    events = [event async for reply in stub.StartRun(request, metadata=running.metadata()) for event in reply.events]
    (asked,) = [event.approval_requested for event in events if event.HasField("approval_requested")]
    return f"pause.approval.{events[0].run_id}.{asked.call_id}"


async def answer_grpc(running: Suite, pause: str) -> str:
    run_id, call_id = parts_of(pause)
    decision = pb.CallDecision(call_id=call_id)
    decision.approval.approve.SetInParent()
    request = pb.ResumeRunRequest(run_id=run_id, decisions=[decision])
    stub = RunServiceStub(running.channels["orchestrator"])
    events = [event async for reply in stub.ResumeRun(request, metadata=running.metadata()) for event in reply.events]
    return events[-1].run_completed.text


# --- OpenAI's wires


async def open_chat(running: Suite) -> str:
    reply = await posted(running, "/v1/chat/completions", {"model": "agent/assistant", "messages": [USER]})
    (called,) = reply["choices"][0]["message"]["tool_calls"]
    return str(called["id"])


async def answer_chat(running: Suite, pause: str) -> str:
    function = {"name": "proctor_approval", "arguments": "{}"}
    asked = {"role": "assistant", "tool_calls": [{"id": pause, "type": "function", "function": function}]}
    messages = [USER, asked, {"role": "tool", "tool_call_id": pause, "content": "approve"}]
    reply = await posted(running, "/v1/chat/completions", {"model": "agent/assistant", "messages": messages})
    return str(reply["choices"][0]["message"]["content"])


async def open_responses(running: Suite) -> str:
    reply = await posted(running, "/v1/responses", {"model": "agent/assistant", "input": QUESTION})
    (asked,) = [item for item in reply["output"] if item["type"] == "mcp_approval_request"]
    return str(asked["id"]).removeprefix(APPROVAL_PREFIX)


async def answer_responses(running: Suite, pause: str) -> str:
    said = {"type": "mcp_approval_response", "approval_request_id": f"{APPROVAL_PREFIX}{pause}", "approve": True}
    reply = await posted(running, "/v1/responses", {"model": "agent/assistant", "input": [said]})
    (message,) = [item for item in reply["output"] if item["type"] == "message"]
    return "".join(part["text"] for part in message["content"])


# --- AI SDK and AG-UI


async def open_ui(running: Suite) -> str:
    # The same messages of a chat would join the run that they began.
    question = {**UI_QUESTION, "id": running.platform.ids.new()}
    chunks = await data_of(running, "/v1/ui/chat", {"id": "chat1", "messages": [question]})
    (asked,) = [chunk for chunk in chunks if chunk["type"] == "tool-approval-request"]
    return str(asked["approvalId"])


async def answer_ui(running: Suite, pause: str) -> str:
    _, call_id = parts_of(pause)
    part = {"type": "dynamic-tool", "toolName": "run_code", "toolCallId": call_id, "state": "approval-responded"}
    assistant = {
        "id": "a1",
        "role": "assistant",
        "parts": [{**part, "input": {}, "approval": {"id": pause, "approved": True}}],
    }
    chunks = await data_of(running, "/v1/ui/chat", {"id": "chat2", "messages": [UI_QUESTION, assistant]})
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")


async def open_ag_ui(running: Suite) -> str:
    got = await data_of(running, "/v1/ag-ui", {**AG_BODY, "runId": "cross-1"})
    (interrupt,) = got[-1]["outcome"]["interrupts"]
    return str(interrupt["id"])


async def answer_ag_ui(running: Suite, pause: str) -> str:
    entry = {"interruptId": pause, "status": "resolved", "payload": {"approved": True}}
    got = await data_of(running, "/v1/ag-ui", {**AG_BODY, "runId": "cross-2", "resume": [entry]})
    assert got[-1]["outcome"] == {"type": "success"}
    return "".join(event["delta"] for event in got if event["type"] == "TEXT_MESSAGE_CONTENT")


@pytest.mark.parametrize(
    ("opened", "answered"),
    [
        pytest.param(open_native, answer_socket, id="socket-answers-native"),
        pytest.param(open_socket, answer_chat, id="chat-answers-socket"),
        pytest.param(open_chat, answer_responses, id="responses-answers-chat"),
        pytest.param(open_responses, answer_ui, id="ai-sdk-answers-responses"),
        pytest.param(open_ui, answer_ag_ui, id="ag-ui-answers-ai-sdk"),
        pytest.param(open_ag_ui, answer_grpc, id="grpc-answers-ag-ui"),
        pytest.param(open_grpc, answer_native, id="native-answers-grpc"),
        pytest.param(open_ui, answer_record, id="the-record-answers-ai-sdk"),
    ],
)
async def test_each_wire_answers_what_another_opened(
    running: Suite, upstream: Upstream, opened: Open, answered: Reply
) -> None:
    upstream.script(call("run_code", json.dumps({"code": "print(6 * 7)", "reason": "to compute"})), say(ANSWER))
    pause = await opened(running)
    run_id, call_id = parts_of(pause)
    assert await answered(running, pause) == ANSWER
    (started,) = of(await watch(running, run_id), "tool_call_started")
    assert (started["call_id"], started["name"]) == (call_id, "run_code")
    assert "42" in upstream.requests[-1].last_text
