"""Research agents and routers over the whole suite: each wire, decisions side by side, a golden transcript."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.golden import assert_golden, transcript
from tests.support.platform import Recorded, test_platform
from tests.support.research_script import ResearchScript
from tests.support.suite import Suite, suite
from tests.support.suite_steps import answer_text, ask, ask_until, ingest_handbook, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import Request, Turn, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
GOLDEN = Path(__file__).parent / "golden"
QUESTION = "Compare the mileage rate for cars with how long an account is locked."
FINAL = "Cars: EUR 0.38 [1]. Accounts: 20 minutes [2]."
HELP = "I answer questions about the handbook."
CONFIG = f"""
[agents.scholar]
type = "research"

[agents.desk]
description = "Answers questions about the handbook."
[agents.desk.router]
off_topic_text = "{HELP}"
[agents.desk.router.labels]
topic = ["How much is the mileage allowance?"]
small_talk = ["Hello!", "Thank you."]
amounts = {{ description = "Asks for amounts of money.", hint = "Give amounts in EUR." }}

[agents.front]
[agents.front.router]
classifier = "embeddings"
[agents.front.router.labels]
topic = ["How much is the mileage allowance?"]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream, recorded: Recorded) -> AsyncIterator[Suite]:
    platform = test_platform(telemetry=recorded.telemetry)
    async with suite(
        model=upstream.base_url,
        config=CONFIG,
        platform=platform,
        services=("approval", "retrieval", "orchestrator"),
        PROCTOR_ORCHESTRATOR_ROUTE_TIMEOUT="60",  # how busy the machine is must not decide
    ) as started:
        await ingest_handbook(started)
        yield started


async def decide(running: Suite, event: dict[str, Any], decision: str) -> None:
    approval_id = event["approval_requested"]["approval_id"]
    reply = await running.http.post(f"/v1/approvals/{approval_id}/decision", json={"decision": decision})
    reply.raise_for_status()


# --- research ----------------------------------------------------------------------------------------------------


async def test_a_research_run_tells_the_same_as_ever(running: Suite, upstream: Upstream) -> None:
    upstream.default = ResearchScript()
    events = await ask(running, QUESTION, agent_id="scholar")
    assert_golden(GOLDEN / "research.txt", transcript(events, by_step=True))


async def test_every_wire_gives_the_answer_alone_and_shows_that_steps_go_on(running: Suite, upstream: Upstream) -> None:
    question = [{"role": "user", "content": QUESTION}]

    upstream.default = ResearchScript()
    chat = await running.http.post("/v1/chat/completions", json={"model": "agent/scholar", "messages": question})
    message = chat.json()["choices"][0]["message"]
    assert message["content"] == FINAL
    assert "Step about 1" in message["reasoning_content"]

    upstream.default = ResearchScript()
    response = await running.http.post("/v1/responses", json={"model": "agent/scholar", "input": QUESTION})
    output = response.json()["output"]
    texts = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
    assert texts == [FINAL]
    assert "Step about 1" in json.dumps([item for item in output if item["type"] == "reasoning"])


async def test_research_asks_back_before_it_plans_and_goes_on_with_the_answer(
    running: Suite, upstream: Upstream
) -> None:
    upstream.default = script = ResearchScript(ask=("Which year do you mean?",))
    seen = await ask_until(running, "run_paused", QUESTION, agent_id="scholar")
    assert of(seen, "questions_asked")[0]["questions_json"][0]["text"] == "Which year do you mean?"
    assert not of(seen, "plan_made")
    run_id = seen[0]["run_id"]
    reply = await running.http.post(f"/v1/runs/{run_id}/resume", json={"hold": 0, "text": "2026"})
    assert reply.status_code == 200
    rest = await watch(running, run_id, seen[-1]["sequence"])
    assert (rest[-1]["kind"], of(rest, "run_completed")[0]["text"]) == ("run_completed", FINAL)
    assert script.seen.count("plan") == 2
    plan = [r for r in upstream.requests if "Plan the research" in r.last_text][-1]
    assert '{"q1":"2026"}' in plan.messages[-2]["content"]


async def test_two_steps_wait_for_their_decisions_which_come_in_reverse_order(
    running: Suite, upstream: Upstream
) -> None:
    upstream.default = ResearchScript(act=("current_time", json.dumps({"reason": "to know the time"})))
    agent = {
        "name": "timed",
        "type": "AGENT_TYPE_RESEARCH",
        "tools": [{"tool": "current_time", "policy": "TOOL_POLICY_ASK"}],
    }
    seen = await ask_until(running, "run_paused", QUESTION, inline_agent=agent)
    assert len(of(seen, "run_paused")[0]["pending"]) == 2
    first, second = [event for event in seen if event["kind"] == "approval_requested"]
    assert {first["step_id"], second["step_id"]} == {"step-1", "step-2"}
    await decide(running, second, "deny")
    await decide(running, first, "approve")
    rest = await watch(running, seen[0]["run_id"], seen[-1]["sequence"])
    assert rest[-1]["kind"] == "run_completed"
    ended = {(f["name"], f["status"]) for f in of(seen + rest, "tool_call_finished")}
    assert ended >= {("current_time", "TOOL_STATUS_COMPLETED"), ("current_time", "TOOL_STATUS_DENIED")}
    assert of(rest, "run_completed")[0]["text"] == FINAL


async def test_the_reader_researches_in_one_step_and_quotes_what_it_found(running: Suite) -> None:
    events = await ask(running, "What is the mileage rate for cars?", agent_id="scholar", model="reader")
    assert [notice["code"] for notice in of(events, "notice")] == ["plan_failed"]
    (completed,) = of(events, "run_completed")
    assert "EUR 0.38 per kilometre for cars" in completed["text"]
    assert any(citation["cited"] for citation in completed["citations"])


# --- routing -----------------------------------------------------------------------------------------------------


def scored(topic: float, small_talk: float, amounts: float, *answer: str) -> list[Turn]:
    scores = {"topic": topic, "small_talk": small_talk, "amounts": amounts}
    return [say(json.dumps(scores)), *([say(*answer)] if answer else [])]


async def test_small_talk_off_topic_and_hints_over_the_whole_suite(running: Suite, upstream: Upstream) -> None:
    upstream.default = None
    upstream.script(*scored(0.0, 0.95, 0.0, "Hello! Ask me about the handbook."))
    events = await ask(running, "Hi there", agent_id="desk")
    assert of(events, "route_decided")[0]["choice"] == "small_talk"
    assert answer_text(events) == "Hello! Ask me about the handbook."
    talk = upstream.requests[-1].body
    assert ("tools" in talk, talk.get("max_tokens", talk.get("max_completion_tokens"))) == (False, 600)

    upstream.script(*scored(0.02, 0.1, 0.0))
    events = await ask(running, "Who won the match?", agent_id="desk")
    assert (answer_text(events), of(events, "run_completed")[0]["text"]) == (HELP, HELP)
    assert [e["purpose"] for e in of(events, "model_call_finished")] == ["route"]

    upstream.script(*scored(0.9, 0.0, 0.9, "EUR 38."))
    events = await ask(running, "What is paid for 100 km?", agent_id="desk")
    assert "Give amounts in EUR." in upstream.requests[-1].messages[0]["content"]
    assert of(events, "route_decided")[0]["choice"] == "topic"


async def test_a_router_without_an_answer_lets_the_agent_answer(running: Suite, upstream: Upstream) -> None:
    def answer(request: Request) -> Turn:
        return say("Not JSON." if "You sort messages" in request.messages[0]["content"] else "The agent's answer.")

    upstream.default = answer
    events = await ask(running, "What is the mileage rate?", agent_id="desk")
    decided = of(events, "route_decided")[0]
    assert (decided["choice"], answer_text(events)) == ("", "The agent's answer.")
    assert "no scores" in decided["explanation"]


async def test_a_router_whose_embedder_is_not_configured_says_so_and_lets_the_agent_answer(
    running: Suite, upstream: Upstream
) -> None:
    upstream.default = say("The agent's answer.")
    events = await ask(running, "What is the mileage rate?", agent_id="front")
    decided = of(events, "route_decided")[0]
    assert (decided["choice"], answer_text(events)) == ("", "The agent's answer.")
    assert "no embedder is configured" in decided["explanation"]


async def test_an_inline_agent_with_a_wrong_router_is_refused_with_what_is_wrong(running: Suite) -> None:
    agent = {"name": "mine", "router_json": {"labels": {"small_talk": ["Hello!"]}}}
    reply = await running.http.post("/v1/runs", json={"input": "Hi", "inline_agent": agent})
    assert reply.status_code == 400, reply.text
    assert "labels must have 'topic'" in reply.text
