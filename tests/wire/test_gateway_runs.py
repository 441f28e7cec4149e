"""The native routes over real sockets, before an orchestrator that plays scripts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from google.protobuf import json_format

from services.chassis.errors import Overloaded
from tests.support.fake_backends import Suite, gateway_suite
from tests.support.run_events import answer, approval_requested, completed, paused, started
from tests.support.sse_reader import Event, all_events, events

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Suite]:
    async with gateway_suite() as running:
        yield running


@pytest.fixture
def suite(shared: Suite) -> Suite:
    return shared.forget()


async def _ask(suite: Suite, **body: Any) -> tuple[httpx.Response, list[Event]]:
    async with suite.http.stream("POST", "/v1/runs", json={"input": "How long?", **body}) as response:
        assert response.status_code == 200, await response.aread()
        return response, await all_events(response)


async def test_a_run_streams_its_events_with_sequence_and_kind(suite: Suite) -> None:
    response, got = await _ask(suite)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["proctor-identity"] == "local-no-key"
    assert [int(event.id) for event in got] == list(range(1, 8))
    assert [event.event for event in got][:2] == ["run_started", "stage_changed"]
    assert got[-1].event == "run_completed"
    assert got[4].json["answer_delta"]["text"] == "25 days "
    assert got[-1].json["run_completed"]["citations"][0]["evidence"]["title"] == "Leave"


async def test_the_first_event_comes_before_the_rest_exists(suite: Suite) -> None:
    suite.orchestrator.script = [started()]
    async with suite.http.stream("POST", "/v1/runs", json={"input": "slow"}) as response:
        stream = events(response)
        first = await anext(stream)
        assert first.event == "run_started"
        suite.orchestrator.runs["run1"].append(answer("x"), completed("x"))
        assert [event.event async for event in stream] == ["answer_delta", "run_completed"]


async def test_a_silent_stream_is_kept_warm_by_comments() -> None:
    async with gateway_suite(keepalive=timedelta(milliseconds=30)) as suite:
        suite.orchestrator.script = [started()]
        async with suite.http.stream("POST", "/v1/runs", json={"input": "slow"}) as response:
            stream = events(response)
            await anext(stream)
            assert (await anext(stream)).comment == "keep-alive"


async def test_reconnecting_with_last_event_id_gives_exactly_the_rest(suite: Suite) -> None:
    _, whole = await _ask(suite)
    for seen in range(len(whole) + 1):
        headers = {"Last-Event-ID": whole[seen - 1].id} if seen else {}
        async with suite.http.stream("GET", "/v1/runs/run1/events", headers=headers) as response:
            rest = await all_events(response)
        assert whole[:seen] + rest == whole


async def test_after_in_the_query_does_the_same(suite: Suite) -> None:
    _, whole = await _ask(suite)
    async with suite.http.stream("GET", "/v1/runs/run1/events?after=5") as response:
        assert await all_events(response) == whole[5:]


@pytest.mark.parametrize("breaks", [[1], [2, 3], [4, 1, 1], [7]])
async def test_a_backend_that_goes_away_leaves_no_gap_and_no_double(suite: Suite, breaks: list[int]) -> None:
    suite.orchestrator.breaks = list(breaks)
    _, got = await _ask(suite)
    assert [int(event.id) for event in got] == list(range(1, 8))


async def test_a_start_that_breaks_before_its_first_event_is_one_run(suite: Suite) -> None:
    suite.orchestrator.breaks = [0, 0]
    _, got = await _ask(suite)
    assert len(got) == 7
    assert len(suite.orchestrator.runs) == 1


async def test_accept_json_waits_and_returns_the_run(suite: Suite) -> None:
    response = await suite.http.post("/v1/runs", json={"input": "x"}, headers={"Accept": "application/json"})
    assert response.status_code == 200
    assert response.json()["state"] == "RUN_STATE_COMPLETED"
    assert response.json()["last_sequence"] == 7


async def test_a_pruned_cursor_is_gone_and_says_what_is_kept(suite: Suite) -> None:
    await _ask(suite)
    suite.orchestrator.oldest = 4
    response = await suite.http.get("/v1/runs/run1/events?after=2")
    assert response.status_code == 410
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["reason"], problem["metadata"]) == ("EVENTS_PRUNED", {"oldest": "4"})
    assert problem["request_id"] == response.headers["x-request-id"]


async def test_a_cursor_that_is_no_number_is_refused(suite: Suite) -> None:
    response = await suite.http.get("/v1/runs/run1/events", headers={"Last-Event-ID": "abc"})
    assert (response.status_code, response.json()["reason"]) == (400, "INVALID_REQUEST")


async def test_a_missing_run_is_a_problem_document(suite: Suite) -> None:
    for method, path in [("GET", "/v1/runs/none"), ("GET", "/v1/runs/none/events"), ("POST", "/v1/runs/none/cancel")]:
        response = await suite.http.request(method, path)
        assert (response.status_code, response.json()["reason"]) == (404, "RUN_NOT_FOUND")


async def test_a_refusal_before_the_first_event_is_an_http_status_with_retry_after(suite: Suite) -> None:
    suite.orchestrator.refuse = Overloaded("too many runs", retry_after=2.4)
    response = await suite.http.post("/v1/runs", json={"input": "x"})
    assert (response.status_code, response.headers["retry-after"]) == (503, "3")


async def test_unknown_members_and_wrong_types_are_named(suite: Suite) -> None:
    response = await suite.http.post("/v1/runs", json={"inptu": "x", "hold": "long"})
    assert response.status_code == 400
    assert {violation["field"] for violation in response.json()["violations"]} == {"inptu", "hold"}


async def test_every_field_of_a_start_reaches_the_orchestrator(suite: Suite) -> None:
    body = {
        "input": [{"text": "look"}, {"image": {"media_type": "image/png", "inline": "aGk="}}],
        "agent_id": "handbook",
        "sources": ["rules"],
        "sampling": {"temperature": 0.0, "max_output_tokens": 50, "stop": ["END"]},
        "output": {"json_schema": {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}}},
        "client_tools": [{"name": "now", "parameters_json": {"type": "object"}}],
        "hold": 0,
        "on_retraction": "hold",
        "on_disconnect": "cancel",
        "budget": {"rounds": 3, "wall_time": 1.5},
        "history": [
            {"role": "assistant", "tool_calls": [{"call_id": "c", "name": "f", "arguments_json": {"x": 2**60}}]},
            {"role": "tool", "content": "4", "tool_call_id": "c"},
        ],
    }
    await _ask(suite, **body)
    sent = suite.orchestrator.runs["run1"].request
    assert sent.input[1].image.inline == b"hi"
    assert sent.sampling.HasField("temperature")
    assert sent.output.json_schema == b'{"properties":{"a":{},"b":{"type":"integer"}},"type":"object"}'
    assert sent.history[0].tool_calls[0].arguments_json == b'{"x":1152921504606846976}'
    assert sent.HasField("hold")
    assert sent.budget.wall_time.ToMilliseconds() == 1500
    assert json_format.MessageToDict(sent)["onRetraction"] == "ON_RETRACTION_HOLD"


async def test_an_idempotency_key_joins_the_same_body_and_refuses_another(suite: Suite) -> None:
    headers = {"Idempotency-Key": "k1", "Accept": "application/json"}
    first = await suite.http.post("/v1/runs", json={"input": "x"}, headers=headers)
    again = await suite.http.post("/v1/runs", json={"input": "x"}, headers=headers)
    other = await suite.http.post("/v1/runs", json={"input": "y"}, headers=headers)
    assert first.json()["run_id"] == again.json()["run_id"]
    assert other.status_code == 422
    assert other.json()["reason"] == "IDEMPOTENCY_KEY_REUSED"
    assert len(suite.orchestrator.runs) == 1


async def test_leaving_a_native_stream_leaves_the_run(suite: Suite) -> None:
    suite.orchestrator.script = [started()]
    async with suite.http.stream("POST", "/v1/runs", json={"input": "slow"}) as response:
        await anext(events(response))
    run = suite.orchestrator.runs["run1"]
    async with asyncio.timeout(5):
        while run.watchers:
            await asyncio.sleep(0.01)
    assert not run.cancelled


async def test_a_slow_reader_makes_nobody_hold_the_whole_answer(suite: Suite) -> None:
    pieces = 1000
    piece = "x" * 64_000
    suite.orchestrator.script = [started(), *(answer(piece) for _ in range(pieces)), completed("done")]
    async with suite.http.stream("POST", "/v1/runs", json={"input": "much"}) as response:
        stream = events(response)
        await anext(stream)
        run = suite.orchestrator.runs["run1"]
        before = -1
        while run.bytes_sent != before:  # until nothing moves any more
            before = run.bytes_sent
            await asyncio.sleep(0.3)
        # What sockets, HTTP/2 windows and one response buffer hold; the answer has 64 MB.
        assert before < 20_000_000
        read = sum([1 async for event in stream if event.event == "answer_delta"])
    assert read == pieces


async def test_cancel_ends_the_stream_with_its_terminal_event(suite: Suite) -> None:
    suite.orchestrator.script = [started()]
    async with suite.http.stream("POST", "/v1/runs", json={"input": "slow"}) as response:
        stream = events(response)
        await anext(stream)
        cancelled = await suite.http.post("/v1/runs/run1/cancel")
        assert cancelled.status_code == 202
        assert [event.event async for event in stream] == ["run_cancelled"]


async def test_resume_brings_typed_decisions_and_streams_what_follows(suite: Suite) -> None:
    suite.orchestrator.script = [started(), approval_requested(), paused("call_1")]
    suite.orchestrator.after_resume = [answer("done"), completed("done")]
    _, first = await _ask(suite, hold=0)
    assert first[-1].event == "run_paused"
    assert first[1].json["approval_requested"]["arguments_json"]["n"] == 2**64
    decision = {"call_id": "call_1", "approval": {"verdict": "edit", "arguments": {"code": "1"}, "comment": "safer"}}
    async with suite.http.stream("POST", "/v1/runs/run1/resume", json={"decisions": [decision]}) as response:
        rest = await all_events(response)
    assert [event.event for event in rest] == ["run_resumed", "answer_delta", "run_completed"]
    sent = suite.orchestrator.resumes[0].decisions[0]
    assert sent.approval.edit.arguments_json == b'{"code":"1"}'
    assert sent.approval.comment == "safer"


@pytest.mark.parametrize(
    "decision",
    [
        {"call_id": "c"},
        {"approval": {"verdict": "approve"}},
        {"call_id": "c", "approval": {"verdict": "maybe"}},
        {"call_id": "c", "approval": {"verdict": "edit"}},
        {"call_id": "c", "approval": {"verdict": "deny", "arguments": {}}},
        {"call_id": "c", "approval": {"verdict": "deny"}, "answers": {}},
    ],
)
async def test_an_unknown_or_incomplete_decision_never_reaches_the_run(suite: Suite, decision: dict[str, Any]) -> None:
    response = await suite.http.post("/v1/runs/run1/resume", json={"decisions": [decision]})
    assert (response.status_code, response.json()["reason"]) == (400, "INVALID_REQUEST")
    assert suite.orchestrator.resumes == []


async def test_runs_are_listed_newest_first(suite: Suite) -> None:
    await _ask(suite)
    await _ask(suite)
    listing = (await suite.http.get("/v1/runs?state=completed")).json()
    assert [run["run_id"] for run in listing["runs"]] == ["run2", "run1"]
    assert listing["next_page_token"] == ""


async def test_a_stream_ends_when_the_gateway_drains() -> None:
    async with gateway_suite() as suite:
        suite.orchestrator.script = [started()]
        async with suite.http.stream("POST", "/v1/runs", json={"input": "slow"}) as response:
            stream = events(response)
            await anext(stream)
            drained = asyncio.create_task(suite.gateway.drain())
            assert [event async for event in stream] == []
            await drained
