"""Responses as a fold: typed events that add up to the response, numbered the same each time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.message import Message
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import events_pb2
from services.gateway.projections import responses as wire
from services.gateway.projections.response_state import State, response
from tests.support import run_events as script

Script = list[tuple[str, Message | None]]
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def tool(call_id: str = "c1", status: str = "COMPLETED") -> Script:
    call = agent_pb2.ToolCall(call_id=call_id, name="search", arguments_json=b'{"q":"leave"}')
    return [
        ("tool_call_proposed", events_pb2.ToolCallProposed(call=call)),
        (
            "tool_call_started",
            events_pb2.ToolCallStarted(call_id=call_id, name="search", arguments_json=b'{"q":"leave"}'),
        ),
        (
            "tool_call_finished",
            events_pb2.ToolCallFinished(
                call_id=call_id,
                name="search",
                status=agent_pb2.ToolStatus.Value(f"TOOL_STATUS_{status}"),
                preview="3 hits",
            ),
        ),
    ]


def play(events: Script, **fields: Any) -> tuple[State, list[dict[str, Any]]]:
    state = State(id=f"resp_{script.RUN_ID}", **fields)
    frames: list[dict[str, Any]] = []
    for event in script.journal(events):
        state, more = wire.fold(state, event)
        frames += more
    return state, frames


def rebuilt(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the output as a client that only reads the events would have it."""
    output: dict[int, dict[str, Any]] = {}
    texts: dict[int, str] = {}
    for frame in frames:
        index = frame.get("output_index", -1)
        match frame["type"]:
            case "response.output_item.added":
                output[index] = frame["item"]
            case "response.output_text.delta" | "response.reasoning_text.delta":
                texts[index] = texts.get(index, "") + frame["delta"]
            case "response.output_text.done" | "response.reasoning_text.done":
                assert frame["text"] == texts[index]
            case "response.output_item.done":
                assert output[index]["id"] == frame["item"]["id"]
                output[index] = frame["item"]
    return [output[index] for index in sorted(output)]


FULL: Script = [
    script.started(),
    script.thinking("hm"),
    script.answer("Let me look."),
    *tool(),
    script.found(1),
    script.answer("25 days [1].", "m2"),
    script.completed("25 days [1].", 1),
]


@pytest.mark.parametrize(
    "events",
    [
        script.ANSWER,
        FULL,
        [script.started(), script.completed("whole")],
        [script.started(), *tool(status="FAILED"), script.completed("sorry")],
        [script.started(), script.approval_requested(), script.paused("call_1")],
        [script.started(), script.proposed(), script.completed("", finish="tool_calls")],
        [script.started(), script.answer("par"), script.failed()],
        [script.started(), script.answer("par"), ("run_cancelled", events_pb2.RunCancelled(cancelled_by="ann"))],
        [script.started(), script.answer("long"), script.completed("long", finish="length")],
    ],
)
def test_events_are_typed_numbered_and_add_up(events: Script) -> None:
    state, frames = play(events)
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    for frame in frames:
        parsed = EVENT.validate_json(json.dumps(frame))
        assert type(parsed).__name__ != "BaseModel"
    assert rebuilt(frames) == frames[-1]["response"]["output"]
    assert frames[-1]["response"] == response(state)
    Response.model_validate_json(json.dumps(response(state)))
    assert state.ended


def test_the_same_events_give_the_same_frames() -> None:
    assert play(FULL)[1] == play(FULL)[1]


def test_a_whole_answer_has_reasoning_remark_tool_and_text() -> None:
    state, _ = play(FULL)
    assert [item["type"] for item in state.output] == ["reasoning", "message", "mcp_call", "message"]
    assert state.output[2]["output"] == "3 hits"
    (note,) = state.output[3]["content"][0]["annotations"]
    assert (note["type"], note["filename"], note["index"]) == ("file_citation", "Leave", 8)
    assert response(state)["usage"]["output_tokens_details"] == {"reasoning_tokens": 2}


def test_web_pages_are_cited_by_url() -> None:
    events: Script = [
        script.started(),
        script.answer("See [1]."),
        script.completed("See [1].", 1, url="https://w.example"),
    ]
    state, frames = play(events)
    (note,) = state.output[0]["content"][0]["annotations"]
    assert (note["url"], note["start_index"], note["end_index"]) == ("https://w.example", 4, 7)
    assert any(frame["type"] == "response.output_text.annotation.added" for frame in frames)


def test_an_approval_is_an_mcp_approval_request() -> None:
    state, _ = play([script.started(), script.approval_requested(), script.paused("call_1")])
    (item,) = state.output
    assert (item["type"], item["name"]) == ("mcp_approval_request", "run_code")
    assert item["id"] == f"mcpr_pause.approval.{script.RUN_ID}.call_1"
    assert '"n":18446744073709551616' in item["arguments"]
    assert state.status == "completed"


def test_a_pending_function_is_a_call_that_names_its_run() -> None:
    state, _ = play([script.started(), script.client_tool(), script.paused("call_9", kind="CLIENT_TOOL")])
    assert state.output[0]["call_id"] == f"pause.tool.{script.RUN_ID}.call_9"
    assert state.output[0]["arguments"] == '{"city":"Oslo"}'


def test_a_cut_answer_is_incomplete_and_says_why() -> None:
    state, frames = play([script.started(), script.answer("long"), script.completed("long", finish="length")])
    assert frames[-1]["type"] == "response.incomplete"
    assert response(state)["incomplete_details"] == {"reason": "max_output_tokens"}


def test_a_form_is_written_once_and_whole() -> None:
    events: Script = [script.started(), script.answer("aloud"), script.completed('{"a":1}')]
    state, _ = play(events, structured=True)
    assert [item["content"][0]["text"] for item in state.output] == ['{"a":1}']


def test_tools_that_run_side_by_side_keep_their_places() -> None:
    first, second = tool("c1"), tool("c2")
    events: Script = [script.started(), first[0], second[0], first[1], second[1], second[2], first[2]]
    state, frames = play([*events, script.completed("ok")])
    done = [frame["output_index"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert done == [1, 0, 2]
    assert [item["status"] for item in state.output] == ["completed"] * 3
