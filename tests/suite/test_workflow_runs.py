"""Workflows over the whole suite: a golden transcript, people in between, refusals before a run begins, every wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.golden import assert_golden, transcript
from tests.support.platform import Recorded, test_platform
from tests.support.suite import Suite, suite
from tests.support.suite_steps import answer_text, ask, ask_until, follow, ingest_handbook, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import call, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = Path(__file__).parents[2] / "examples" / "workflows"
CLAIM = """
description: Looks a rate up, works a claim out, and has it approved.
state: {amount: 0.0}
nodes:
  begin: {type: start, next: look}
  look: {type: tool, title: Look it up, tool: search, arguments: {query: mileage rate for cars}, next: rate}
  rate:
    type: agent
    prompt: "Which rate does this say? {{ nodes.look.text }}"
    output:
      type: object
      properties: {rate: {type: number}}
      required: [rate]
      additionalProperties: false
    next: work
  work: {type: state, set: {amount: nodes.rate.value.rate * 100.0}, next: dear}
  dear: {type: condition, branches: [{when: state.amount > 30.0, next: approve}], else: done}
  approve:
    type: approval
    message: "Pay EUR {{ state.amount }} to {{ user }}?"
    details: {amount: "= state.amount"}
    denied: refused
    next: done
  done: {type: end, output: "EUR {{ nodes.approve.value.amount }} for 100 km [1]."}
  refused: {type: end, output: "Refused."}
"""
ENDLESS = """
steps: 20
state: {n: 0}
nodes:
  begin: {type: start, next: count}
  count: {type: state, set: {n: state.n + 1}, next: enough}
  enough: {type: condition, branches: [{when: state.n < 0, next: done}], else: count}
  done: {type: end}
"""
SIDES = """
description: Adds something up, after asking.
parameters: {type: object, properties: {what: {type: string}}, required: [what], additionalProperties: false}
direct_output: true
nodes:
  begin: {type: start, next: ask}
  ask: {type: approval, message: "Add up {{ args.what }}?", next: done}
  done: {type: end, output: "All {{ args.what }} make 42."}
"""
CONFIG = """
[agents.claim]
workflow = "{folder}/claim.yaml"
sources = ["handbook"]
[agents.endless]
workflow = "{folder}/endless.yaml"
[agents.sum]
workflow = "{folder}/sides.yaml"
[agents.counter]
tools = ["sum"]
[agents.trip-request]
workflow = "{examples}/trip-request.yaml"
sources = ["handbook"]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    upstream: Upstream, recorded: Recorded, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Suite]:
    folder = tmp_path_factory.mktemp("workflows")
    for name, text in (("claim", CLAIM), ("endless", ENDLESS), ("sides", SIDES)):
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    config = CONFIG.format(folder=folder, examples=EXAMPLES)
    platform = test_platform(telemetry=recorded.telemetry)
    services = ("approval", "retrieval", "orchestrator")
    async with suite(model=upstream.base_url, config=config, platform=platform, services=services) as started:
        await ingest_handbook(started)
        yield started


async def decide(running: Suite, event: dict[str, Any], **decision: Any) -> None:
    (kind,) = [kind for kind in ("approval_requested", "questions_asked") if event["kind"] == kind]
    reply = await running.http.post(f"/v1/approvals/{event[kind]['approval_id']}/decision", json=decision)
    reply.raise_for_status()


async def led(running: Suite, question: str, agent: str, *decisions: dict[str, Any]) -> list[dict[str, Any]]:
    """Ask over one connection, decide what is asked in order, and return every event."""
    left = list(decisions)
    seen = []
    body = {"input": question, "agent_id": agent, "hold": 60}
    async with aclosing(follow(running, "POST", "/v1/runs", body=body)) as stream:
        async for event in stream:
            seen.append(event)
            if event["kind"] in ("approval_requested", "questions_asked"):
                await decide(running, event, **left.pop(0))
    assert left == []
    return seen


async def test_a_workflow_run_tells_the_same_as_ever(running: Suite, upstream: Upstream) -> None:
    upstream.script(say('{"rate": 0.38}'))
    events = await ask_until(running, "run_paused", "What do I get for 100 km?", agent_id="claim")
    (asked,) = [event for event in events if event["kind"] == "approval_requested"]
    await decide(running, asked, decision="edit", arguments={"message": "Pay?", "details": {"amount": 37.0}})
    events += await watch(running, events[0]["run_id"], events[-1]["sequence"])
    assert_golden(GOLDEN / "workflow.txt", transcript(events))
    (completed,) = of(events, "run_completed")
    assert completed["text"] == "EUR 37.0 for 100 km [1]."
    assert [citation["number"] for citation in completed["citations"] if citation["cited"]] == [1]


async def test_the_keyless_example_asks_looks_up_and_has_a_person_decide(running: Suite, upstream: Upstream) -> None:
    upstream.default = say("Up to the limit of the city [1].")
    numbers = {"decision": "answer", "answers": {"days": 3, "cost": 4200}}
    events = await led(running, "Munich", "trip-request", numbers, {"decision": "deny", "comment": "too dear"})
    assert of(events, "run_completed")[0]["text"] == "The trip was not approved (denied)."
    kinds = {event["step_started"]["step_id"] for event in events if event["kind"] == "step_started"}
    assert kinds >= {"ask", "keep", "look", "rules", "hotels", "tell", "dear", "approve", "refused"}
    assert [notice["text"] for notice in of(events, "notice") if notice["code"] == "workflow_note"] == [
        "3 days for EUR 4200.0."
    ]


async def test_a_loop_without_end_fails_the_run_with_its_reason(running: Suite) -> None:
    events = await ask(running, "Go", agent_id="endless")
    (failed,) = of(events, "run_failed")
    assert failed["reason"] == "WORKFLOW_STEP_LIMIT"
    assert "entered 20 nodes" in failed["message"]


async def test_a_node_whose_model_fails_names_itself_and_the_models_error(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("no JSON"), say("still no JSON"))
    events = await ask(running, "What do I get?", agent_id="claim")
    (failed,) = of(events, "run_failed")
    assert failed["reason"] == "WORKFLOW_NODE_FAILED"
    assert failed["message"].startswith("node 'rate' failed: OUTPUT_INVALID: ")
    ended = {step["step_id"]: step["failed"] for step in of(events, "step_finished")}
    assert ended == {"begin": False, "look": False, "rate": True}


async def test_an_agent_calls_a_workflow_that_asks_inside_and_gives_its_output_as_the_answer(
    running: Suite, upstream: Upstream
) -> None:
    upstream.script(call("sum", '{"what": "apples", "reason": "to know"}'))
    events = await led(running, "How many?", "counter", {"decision": "approve"})
    (completed,) = of(events, "run_completed")
    assert completed["text"] == "All apples make 42."
    assert answer_text([event for event in events if not event["step_id"]]) == "All apples make 42."
    assert len(upstream.requests) == 1
    offered = {tool["function"]["name"] for tool in upstream.requests[0].body["tools"]}
    assert offered == {"sum", "search"}


async def test_workflows_are_not_offered_to_agents_that_do_not_name_them(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("Nothing."))
    await ask(running, "What?", agent_id="assistant")
    offered = {tool["function"]["name"] for tool in upstream.requests[0].body["tools"]}
    assert not offered & {"sum", "claim", "http_request", "request_approval"}


async def test_a_message_that_does_not_fit_the_parameters_is_refused_before_a_run_begins(running: Suite) -> None:
    two = SIDES.replace("{what: {type: string}}", "{what: {type: string}, more: {type: integer}}")
    inline = {"name": "two", "type": "AGENT_TYPE_WORKFLOW", "workflow_yaml": two}
    reply = await running.http.post("/v1/runs", json={"input": "apples", "inline_agent": inline})
    assert reply.status_code == 400
    assert "takes a JSON object" in reply.json()["detail"]


async def test_a_name_that_does_not_exist_is_refused_when_a_workflow_is_saved_or_sent(running: Suite) -> None:
    wrong = CLAIM.replace("state.amount > 30.0", "state.amuont > 30.0")
    agent = {"name": "wrong", "type": "AGENT_TYPE_WORKFLOW", "workflow_yaml": wrong}
    saved = await running.http.post("/v1/agents", json={"agent": agent})
    sent = await running.http.post("/v1/runs", json={"input": "x", "inline_agent": agent})
    for reply in (saved, sent):
        assert reply.status_code == 400
        (violation,) = reply.json()["violations"]
        assert violation["field"].endswith("nodes.dear.branches[0].when")
        assert "there is no 'state.amuont'; did you mean 'amount'?" in violation["description"]
    assert sent.json()["reason"] == "WORKFLOW_INVALID"


async def test_a_chat_client_gets_the_output_alone_and_the_steps_as_reasoning(
    running: Suite, upstream: Upstream
) -> None:
    text = CLAIM.replace("state.amount > 30.0", "state.amount > 90.0").replace("nodes.approve.value", "state")
    agent = {"name": "cheap", "type": "AGENT_TYPE_WORKFLOW", "workflow_yaml": text}
    made = await running.http.post("/v1/agents", json={"agent": agent})
    assert made.status_code == 201, made.text
    upstream.script(say('{"rate": 0.2}'))
    question = [{"role": "user", "content": "What do I get?"}]
    reply = await running.http.post("/v1/chat/completions", json={"model": "agent/cheap", "messages": question})
    message = reply.json()["choices"][0]["message"]
    assert message["content"] == "EUR 20.0 for 100 km [1]."
