"""It asks before it acts: approval, sandbox, pause and resume through every service."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio

from proctor.approval.v1 import approval_service_pb2 as approval_pb
from proctor.approval.v1.approval_service_pb2_grpc import ApprovalServiceStub
from proctor.orchestrator.v1 import run_service_pb2 as run_pb
from proctor.orchestrator.v1.run_service_pb2_grpc import RunServiceStub
from services.chassis.identity import Principal
from tests.support.platform import Recorded, test_platform
from tests.support.suite import Suite, suite
from tests.support.suite_steps import TERMINAL, ask, ask_until, follow, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import Turn, call, calls, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
CODE = "print(6 * 7)"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream, recorded: Recorded) -> AsyncIterator[Suite]:
    """All five services; requests lapse after three seconds so that expiry can be waited for."""
    async with suite(
        model=upstream.base_url,
        platform=test_platform(telemetry=recorded.telemetry),
        PROCTOR_ORCHESTRATOR_PARKED_EVERY="0.2",
    ) as started:
        yield started


def running_code(code: str = CODE) -> Turn:
    return call("run_code", json.dumps({"code": code, "reason": "to compute"}))


async def decide(running: Suite, approval_id: str, **decision: Any) -> dict[str, Any]:
    reply = await running.http.post(f"/v1/approvals/{approval_id}/decision", json=decision)
    return {"status": reply.status_code, **reply.json()}


async def paused(running: Suite, question: str = "What is 6 times 7?", **body: Any) -> tuple[str, list[dict[str, Any]]]:
    """Ask, and return the run's id and its events up to the pause, the stream closed there."""
    events = await ask(running, question, hold=0, **body)
    assert events[-1]["kind"] == "run_paused", [event["kind"] for event in events]
    return events[0]["run_id"], events


def asked(events: list[dict[str, Any]]) -> dict[str, Any]:
    (request,) = of(events, "approval_requested")
    return request


@pytest.mark.parametrize("agent", ["assistant", "classic"])
async def test_a_gated_tool_asks_and_the_same_stream_goes_on_after_allow(
    running: Suite, upstream: Upstream, agent: str
) -> None:
    upstream.script(running_code(), say("It is 42."))
    events: list[dict[str, Any]] = []
    body = {"input": "What is 6 times 7?", "agent_id": agent}
    async with aclosing(follow(running, "POST", "/v1/runs", body=body)) as stream:
        async for event in stream:
            events.append(event)
            if event["kind"] == "run_paused":
                request = asked(events)
                assert request["reason"] == "to compute"
                assert of(events, "tool_call_started") == []
                decided = await decide(running, request["approval_id"], decision="approve")
                assert decided["status"] == 200
    kinds = [event["kind"] for event in events]
    assert kinds.count("run_resumed") == 1
    assert of(events, "run_completed")[0]["text"] == "It is 42."
    (finished,) = [f for f in of(events, "tool_call_finished") if f["name"] == "run_code"]
    assert finished["status"] == "TOOL_STATUS_COMPLETED"
    assert "42" in upstream.requests[-1].last_text
    assert "not evidence" in upstream.requests[-1].last_text


@pytest.mark.parametrize(("decision", "told"), [("deny", "A person refused"), ("expire", "Nobody decided in time")])
async def test_a_refusal_reaches_the_model_and_nothing_runs(
    running: Suite, upstream: Upstream, decision: str, told: str
) -> None:
    upstream.script(running_code(), say("Then not."))
    agent = {
        "name": "hasty",
        "tools": [{"tool": "run_code", "policy": "TOOL_POLICY_ASK", "deadline": "1s"}],
    }
    run_id, events = await paused(running, inline_agent=agent)
    if decision == "deny":
        await decide(running, asked(events)["approval_id"], decision="deny", comment="not today")
    rest = await watch(running, run_id, events[-1]["sequence"])
    assert of(rest, "tool_call_started") == []
    assert of(rest, "run_completed")[0]["text"] == "Then not."
    assert told in upstream.requests[-1].last_text
    if decision == "deny":
        assert "not today" in upstream.requests[-1].last_text


async def test_a_late_decision_stays_refused_and_says_so(running: Suite, upstream: Upstream) -> None:
    upstream.script(running_code(), say("Too late."))
    agent = {"name": "hasty", "tools": [{"tool": "run_code", "policy": "TOOL_POLICY_ASK", "deadline": "1s"}]}
    run_id, events = await paused(running, inline_agent=agent)
    await watch(running, run_id)
    late = await decide(running, asked(events)["approval_id"], decision="approve")
    assert (late["status"], late["reason"]) == (409, "APPROVAL_EXPIRED")


async def test_the_same_decision_twice_is_one_and_another_learns_who_won(running: Suite, upstream: Upstream) -> None:
    upstream.script(running_code(), say("Done."))
    run_id, events = await paused(running)
    approval_id = asked(events)["approval_id"]
    first, second = await asyncio.gather(
        decide(running, approval_id, decision="approve"), decide(running, approval_id, decision="approve")
    )
    assert (first["status"], second["status"]) == (200, 200)
    other = await decide(running, approval_id, decision="deny")
    assert (other["status"], other["reason"]) == (409, "APPROVAL_DECIDED")
    assert other["metadata"]["decided_by"] == "local"
    rest = await watch(running, run_id)
    assert len(of(rest, "tool_call_started")) == 1


async def test_two_outstanding_answered_in_reverse_order_each_get_their_own(running: Suite, upstream: Upstream) -> None:
    one, two = json.dumps({"code": "print('one')"}), json.dumps({"code": "print('two')"})
    upstream.script(calls(("run_code", one), ("run_code", two)), say("Both."))
    run_id, events = await paused(running)
    first, second = of(events, "approval_requested")
    await decide(running, second["approval_id"], decision="approve")
    await decide(running, first["approval_id"], decision="deny")
    rest = await watch(running, run_id)
    statuses = {f["call_id"]: f["status"] for f in of(rest, "tool_call_finished")}
    assert statuses == {
        first["call_id"]: "TOOL_STATUS_DENIED",
        second["call_id"]: "TOOL_STATUS_COMPLETED",
    }


async def test_edited_arguments_run_and_the_model_reads_them(running: Suite, upstream: Upstream) -> None:
    upstream.script(running_code(), say("Edited."))
    run_id, events = await paused(running)
    reply = await decide(running, asked(events)["approval_id"], decision="edit", arguments={"code": "print('safer')"})
    assert reply["status"] == 200, reply
    rest = await watch(running, run_id)
    assert of(rest, "tool_call_started")[0]["arguments_json"] == {"code": "print('safer')"}
    told = upstream.requests[-1].last_text
    assert "A person changed the arguments" in told
    assert "safer" in told


async def test_a_decision_of_the_wrong_kind_is_refused_and_the_run_stays_pending(
    running: Suite, upstream: Upstream
) -> None:
    upstream.script(running_code(), say("Fine."))
    run_id, events = await paused(running)
    call_id = asked(events)["call_id"]
    wrong = [
        ({"call_id": call_id, "client_tool": {"result": "42"}}, 400),
        ({"call_id": call_id, "answers": {"answers": {"q": "42"}}}, 400),
        ({"call_id": "no-such-call", "approval": {"verdict": "approve"}}, 400),
        ({"call_id": call_id}, 400),
    ]
    for decision, status in wrong:
        reply = await running.http.post(f"/v1/runs/{run_id}/resume", json={"decisions": [decision]})
        assert reply.status_code == status, reply.text
    assert (await running.http.get(f"/v1/runs/{run_id}")).json()["state"] == "RUN_STATE_PAUSED"
    reply = await running.http.post(
        f"/v1/runs/{run_id}/resume",
        json={"decisions": [{"call_id": call_id, "approval": {"verdict": "approve"}}]},
        headers={"accept": "text/event-stream"},
    )
    assert reply.status_code == 200, reply.text
    rest = await watch(running, run_id)
    assert rest[-1]["kind"] == "run_completed"


async def test_a_resume_sent_twice_at_once_continues_the_run_once(running: Suite, upstream: Upstream) -> None:
    upstream.script(running_code(), say("Once."))
    run_id, events = await paused(running)
    body = {"decisions": [{"call_id": asked(events)["call_id"], "approval": {"verdict": "approve"}}]}

    async def resume() -> list[dict[str, Any]]:
        try:
            return [event async for event in follow(running, "POST", f"/v1/runs/{run_id}/resume", body=body)]
        except Exception as error:  # the second may find the run at work already
            return [{"kind": "refused", "error": repr(error)}]

    streams = await asyncio.gather(resume(), resume())
    assert any(stream[-1]["kind"] == "run_completed" for stream in streams)
    whole = await watch(running, run_id)
    assert len(of(whole, "tool_call_started")) == 1
    assert sum(event["kind"] in TERMINAL for event in whole) == 1


async def test_stop_while_an_approval_is_pending_settles_at_once(running: Suite, upstream: Upstream) -> None:
    upstream.script(running_code())
    run_id, events = await paused(running)
    async with asyncio.timeout(5):
        await running.http.post(f"/v1/runs/{run_id}/cancel")
        rest = await watch(running, run_id)
    assert rest[-1]["kind"] == "run_cancelled"
    assert of(rest, "tool_call_started") == []
    late = await decide(running, asked(events)["approval_id"], decision="approve")
    assert late["status"] == 409


async def test_allow_for_this_conversation_is_not_asked_again_there(running: Suite, upstream: Upstream) -> None:
    upstream.script(running_code(), say("One."))
    run_id, events = await paused(running)
    await decide(running, asked(events)["approval_id"], decision="approve", remember="conversation")
    await watch(running, run_id)
    conversation = of(events, "run_started")[0]["conversation_id"]
    upstream.script(running_code("print(1)"), say("Two."), running_code("print(2)"))
    again = await ask(running, "Again?", conversation_id=conversation)
    assert again[-1]["kind"] == "run_completed"
    elsewhere, _ = await paused(running, "And here?")
    await running.http.post(f"/v1/runs/{elsewhere}/cancel")


async def test_an_unattended_run_with_a_gated_tool_is_parked_never_approved(running: Suite, upstream: Upstream) -> None:
    upstream.script(running_code())
    run_id, events = await paused(running, unattended=True)
    assert of(events, "tool_call_started") == []
    await running.http.post(f"/v1/runs/{run_id}/cancel")


async def test_a_mixed_batch_runs_the_free_call_and_orders_all_results(running: Suite, upstream: Upstream) -> None:
    tools = [{"name": "theirs", "description": "", "parameters_json": {"type": "object"}}]
    code = json.dumps({"code": CODE})
    upstream.script(calls(("run_code", code), ("current_time", "{}"), ("theirs", "{}")), say("All three."))
    run_id, events = await paused(running, client_tools=tools)
    assert [f["name"] for f in of(events, "tool_call_finished")] == ["current_time"]
    theirs = of(events, "client_tool_requested")[0]["call"]["call_id"]
    body = {"decisions": [{"call_id": theirs, "client_tool": {"result": "from the caller"}}]}
    reply = await running.http.post(f"/v1/runs/{run_id}/resume", json={**body, "hold": 0})
    assert reply.status_code == 200, reply.text
    await decide(running, asked(events)["approval_id"], decision="approve")
    rest = await watch(running, run_id)
    assert rest[-1]["kind"] == "run_completed"
    results = [m for m in upstream.requests[-1].messages if m["role"] == "tool"]
    proposed = [c["id"] for m in upstream.requests[-1].messages for c in m.get("tool_calls") or ()]
    assert [m["tool_call_id"] for m in results] == proposed
    assert ["42" in str(results[0]), "UTC" in str(results[1]), "from the caller" in str(results[2])] == [True] * 3


async def test_another_tenant_sees_nothing_of_it(running: Suite, upstream: Upstream) -> None:
    upstream.script(running_code())
    run_id, events = await paused(running)
    stranger = running.metadata(Principal(tenant="other", user="local", scopes=frozenset({"*"})))
    runs = RunServiceStub(running.channels["orchestrator"])
    approvals = ApprovalServiceStub(running.channels["approval"])
    approval_id = asked(events)["approval_id"]
    attempts: list[Awaitable[Any]] = [
        runs.GetRun(run_pb.GetRunRequest(run_id=run_id), metadata=stranger),
        runs.CancelRun(run_pb.CancelRunRequest(run_id=run_id), metadata=stranger),
        approvals.Decide(
            approval_pb.DecideRequest(approval_id=approval_id, approve=approval_pb.ApproveDecision()), metadata=stranger
        ),
        approvals.CancelApproval(approval_pb.CancelApprovalRequest(approval_id=approval_id), metadata=stranger),
    ]
    for attempt in attempts:
        with pytest.raises(Exception, match="NOT_FOUND"):
            await attempt
    with pytest.raises(Exception, match="NOT_FOUND"):
        async for _ in runs.WatchRun(run_pb.WatchRunRequest(run_id=run_id), metadata=stranger):
            pass
    listed = await runs.ListRuns(run_pb.ListRunsRequest(), metadata=stranger)
    assert list(listed.runs) == []
    await running.http.post(f"/v1/runs/{run_id}/cancel")


async def test_no_secret_enters_journal_continuation_or_spans(
    running: Suite, upstream: Upstream, recorded: Recorded
) -> None:
    upstream.script(running_code())
    run_id, _ = await paused(running)
    secret = upstream.requests[-1].headers["authorization"].removeprefix("Bearer ")
    token = running.metadata()[0][1].removeprefix("Bearer ")
    with sqlite3.connect(running.folder / "orchestrator" / "orchestrator.sqlite3") as database:
        tables = [row[0] for row in database.execute("select name from sqlite_master where type = 'table'")]
        kept = "".join(str(row) for table in tables for row in database.execute(f"select * from {table}"))
    spans = "".join(span.to_json() for span in recorded.spans())
    for hidden in (token.split(".")[2], *([secret] if secret != "none" else [])):
        assert hidden not in kept
        assert hidden not in spans
    await running.http.post(f"/v1/runs/{run_id}/cancel")


async def test_files_of_the_code_are_kept_and_served_safely(running: Suite, upstream: Upstream) -> None:
    code = "open('report.html', 'w').write('<script>alert(1)</script>')\nopen('t.txt', 'w').write('hello')"
    upstream.script(running_code(code), say("Saved."))
    seen = await ask_until(running, "run_paused", "Write files.")
    await decide(running, asked(seen)["approval_id"], decision="approve")
    rest = await watch(running, seen[0]["run_id"], seen[-1]["sequence"])
    files = {a["artifact"]["name"]: a["artifact"] for a in of(rest, "artifact_created")}
    assert set(files) == {"report.html", "t.txt"}
    page = await running.http.get(f"/v1/artifacts/{files['report.html']['artifact_id']}")
    assert page.content == b"<script>alert(1)</script>"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "attachment" in page.headers["content-disposition"]
    assert "sandbox" in page.headers["content-security-policy"]
