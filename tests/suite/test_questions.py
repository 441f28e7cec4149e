"""Questions to the user, waiting for them, and tools that the caller executes: other kinds of the same record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.suite import Suite
from tests.support.suite_steps import ask, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import Turn, call, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHICH = {"question_id": "city", "text": "Which city?", "type": "single_choice", "options": ["Oslo", "Rome"]}
WHEN = {"question_id": "day", "text": "When?", "type": "date", "required": True}


def asking(*questions: dict[str, Any]) -> Turn:
    return call("ask_user", json.dumps({"questions": list(questions), "reason": "to plan"}))


async def paused(running: Suite, **body: Any) -> tuple[str, dict[str, Any]]:
    events = await ask(running, "Plan a trip.", hold=0, **body)
    assert events[-1]["kind"] == "run_paused", events[-1]
    return events[0]["run_id"], events[-1]["run_paused"]["pending"][0]


async def resume(running: Suite, run_id: str, **body: Any) -> Any:
    return await running.http.post(f"/v1/runs/{run_id}/resume", json={"hold": 0, **body})


async def test_questions_are_asked_typed_and_their_answers_reach_the_model(running: Suite, upstream: Upstream) -> None:
    upstream.script(asking(WHICH, WHEN), say("Rome it is."))
    run_id, pending = await paused(running)
    assert pending["kind"] == "PAUSE_KIND_QUESTION"
    wrong = {"call_id": pending["call_id"], "answers": {"answers": {"city": "Paris", "day": "tomorrow"}}}
    refused = await resume(running, run_id, decisions=[wrong])
    assert refused.status_code == 400
    assert {"city", "day"} <= {v["field"].rsplit(".", 1)[-1] for v in refused.json()["violations"]}
    right = {"call_id": pending["call_id"], "answers": {"answers": {"city": "Rome", "day": "2026-12-24"}}}
    assert (await resume(running, run_id, decisions=[right])).status_code == 200
    rest = await watch(running, run_id)
    assert rest[-1]["kind"] == "run_completed"
    assert of(rest, "questions_asked")[0]["questions_json"][0]["text"] == "Which city?"
    assert of(rest, "questions_answered")[0]["answers_json"] == {"city": "Rome", "day": "2026-12-24"}
    assert "Rome" in upstream.requests[-1].last_text


async def test_free_text_answers_the_only_question(running: Suite, upstream: Upstream) -> None:
    upstream.script(asking({"question_id": "name", "text": "Your name?", "type": "text"}), say("Hello Ann."))
    run_id, _ = await paused(running)
    assert (await resume(running, run_id, text="Ann")).status_code == 200
    await watch(running, run_id)
    assert '{"name":"Ann"}' in upstream.requests[-1].last_text


async def test_free_text_is_refused_when_it_could_mean_several_things(running: Suite, upstream: Upstream) -> None:
    upstream.script(asking(WHICH, WHEN), say("Fine."))
    run_id, pending = await paused(running)
    refused = await resume(running, run_id, text="Rome")
    assert (refused.status_code, refused.json()["reason"]) == (400, "INVALID_REQUEST")
    skip = {"call_id": pending["call_id"], "answers": {"skipped": True}}
    # One of them must be answered, so the batch cannot be skipped.
    assert (await resume(running, run_id, decisions=[skip])).status_code == 400
    await running.http.post(f"/v1/runs/{run_id}/cancel")


async def test_skipping_tells_the_model_to_use_its_best_judgement(running: Suite, upstream: Upstream) -> None:
    upstream.script(asking(WHICH), say("I assumed Rome."))
    run_id, pending = await paused(running)
    skip = {"call_id": pending["call_id"], "answers": {"skipped": True}}
    assert (await resume(running, run_id, decisions=[skip])).status_code == 200
    await watch(running, run_id)
    assert "use your best judgement" in upstream.requests[-1].last_text


async def test_a_fourth_batch_of_questions_is_refused(running: Suite, upstream: Upstream) -> None:
    upstream.script(*(asking(WHICH) for _ in range(4)), say("Enough asked."))
    run_id, pending = await paused(running)
    for batch in range(3):
        answer = {"call_id": pending["call_id"], "answers": {"answers": {"city": "Oslo"}}}
        assert (await resume(running, run_id, decisions=[answer])).status_code == 200
        if batch < 2:
            pending = (await running.http.get(f"/v1/runs/{run_id}")).json()["pending"][0]
    rest = await watch(running, run_id)
    assert rest[-1]["kind"] == "run_completed"
    assert [f["status"] for f in of(rest, "tool_call_finished")].count("TOOL_STATUS_OVER_BUDGET") == 1
    assert len(of(rest, "questions_asked")) == 3


@pytest.mark.parametrize(
    ("text", "told"), [("I am back.", "The user goes on: I am back."), (None, "ended the run here")]
)
async def test_waiting_for_the_user_goes_on_with_a_message_or_ends(
    running: Suite, upstream: Upstream, text: str | None, told: str
) -> None:
    upstream.script(call("wait_for_user", "{}"), say("Good."))
    run_id, pending = await paused(running)
    assert pending["kind"] == "PAUSE_KIND_CONTINUE"
    body = {"text": text} if text else {"decisions": [{"call_id": pending["call_id"], "continue_with": {}}]}
    assert (await resume(running, run_id, **body)).status_code == 200
    assert (await watch(running, run_id))[-1]["kind"] == "run_completed"
    assert told in upstream.requests[-1].last_text


async def test_nobody_to_answer_means_no_such_tool(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("Alone."))
    await ask(running, "Anyone?", unattended=True)
    offered = [tool["function"]["name"] for tool in upstream.requests[-1].body["tools"]]
    assert not {"ask_user", "wait_for_user"} & set(offered)
