"""Conversations and quotas through the gateway: kept, found, renamed, rated, superseded, exported, bounded."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.support.suite import Suite, suite
from tests.support.suite_steps import ask, ask_until, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import Say, Turn, Wait, say

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def told(running: Suite, conversation: str) -> list[tuple[str, str]]:
    """Return role and text of the messages in force."""
    reply = await running.http.get(f"/v1/conversations/{conversation}")
    reply.raise_for_status()
    return [
        (entry["message"]["role"].removeprefix("ROLE_").lower(), "".join(p["text"] for p in entry["message"]["parts"]))
        for entry in reply.json()["messages"]
    ]


async def start(running: Suite, upstream: Upstream, question: str, answer: str, **body: Any) -> str:
    upstream.script(say(answer))
    events = await ask(running, question, **body)
    assert events[-1]["kind"] == "run_completed", events[-1]
    return str(of(events, "run_started")[0]["conversation_id"])


async def test_a_turn_is_kept_and_the_conversation_is_found_by_what_was_said(
    running: Suite, upstream: Upstream
) -> None:
    conversation = await start(running, upstream, "How tall is the Zugspitze?", "2962 metres.")
    assert await told(running, conversation) == [("user", "How tall is the Zugspitze?"), ("assistant", "2962 metres.")]
    found: list[dict[str, Any]] = []
    for query in ("zugspitze", "2962"):
        found = (await running.http.get("/v1/conversations", params={"query": query})).json()["conversations"]
        assert [entry["conversation_id"] for entry in found] == [conversation]
    assert found[0]["title"] == "How tall is the Zugspitze?"


async def test_renaming_rating_and_export(running: Suite, upstream: Upstream) -> None:
    conversation = await start(running, upstream, "One?", "Two.")
    url = f"/v1/conversations/{conversation}"
    renamed = await running.http.patch(url, json={"title": "Numbers"})
    assert renamed.json()["conversation"]["title"] == "Numbers"
    answer = (await running.http.get(url)).json()["messages"][-1]["message"]["message_id"]
    rated = await running.http.post(f"{url}/messages/{answer}/feedback", json={"rating": "good", "comment": "yes"})
    assert rated.status_code == 200
    lines = [json.loads(line) for line in (await running.http.get(f"{url}/export")).text.splitlines()]
    assert lines[0]["title"] == "Numbers"
    assert (lines[-1]["rating"], lines[-1]["comment"]) == ("RATING_GOOD", "yes")
    wrong = await running.http.post(f"{url}/messages/nope/feedback", json={"rating": "bad"})
    assert (wrong.status_code, wrong.json()["reason"]) == (404, "MESSAGE_NOT_FOUND")


async def test_regenerating_supersedes_later_messages_without_losing_them(running: Suite, upstream: Upstream) -> None:
    conversation = await start(running, upstream, "First?", "Old answer.")
    await start(running, upstream, "Second?", "More.", conversation_id=conversation)
    messages = (await running.http.get(f"/v1/conversations/{conversation}")).json()["messages"]
    first = messages[0]["message"]["message_id"]
    await start(
        running,
        upstream,
        "First, but better?",
        "New answer.",
        conversation_id=conversation,
        supersede_message_id=first,
    )
    assert await told(running, conversation) == [("user", "First, but better?"), ("assistant", "New answer.")]
    assert "Old answer." not in json.dumps(upstream.requests[-1].messages)
    export = (await running.http.get(f"/v1/conversations/{conversation}/export")).text
    assert "Old answer." in export


async def test_deleting_while_a_run_is_active_is_refused_and_works_afterwards(
    running: Suite, upstream: Upstream
) -> None:
    gate = Wait()
    upstream.script(Turn(steps=(gate, Say(pieces=("Done.",)))))
    seen = await ask_until(running, "run_started", "Slow?")
    url = f"/v1/conversations/{of(seen, 'run_started')[0]['conversation_id']}"
    busy = await running.http.delete(url)
    assert busy.json()["reason"] == "CONVERSATION_BUSY"
    second = await running.http.post("/v1/runs", json={"input": "Too?", "conversation_id": url.rsplit("/", 1)[1]})
    assert second.json()["reason"] == "CONVERSATION_BUSY"
    gate.event.set()
    await watch(running, seen[0]["run_id"])
    assert (await running.http.delete(url)).status_code == 200
    assert (await running.http.get(url)).status_code == 404


async def test_an_aborted_runs_evidence_never_leaks_into_the_next_turn(running: Suite, upstream: Upstream) -> None:
    upstream.script(Turn(steps=(Say(pieces=("EUR [1]",)), Wait())))
    seen = await ask_until(running, "answer_delta", "What is the mileage rate for cars?", agent_id="classic")
    await running.http.post(f"/v1/runs/{seen[0]['run_id']}/cancel")
    await watch(running, seen[0]["run_id"])
    conversation = of(seen, "run_started")[0]["conversation_id"]
    upstream.script(say("Hello [1]."))
    events = await ask(running, "Hello there?", agent_id="assistant", conversation_id=conversation)
    completed = of(events, "run_completed")[0]
    assert (completed["citations"], completed["unknown_citations"]) == ([], [1])
    assert "EUR 0.38" not in json.dumps(upstream.requests[-1].messages)


async def test_twenty_parallel_requests_against_a_quota_for_five_run_five(running: Suite, upstream: Upstream) -> None:
    used = (await running.http.get("/v1/runs", params={"page_size": 500})).json()["runs"]
    assert (await running.http.put("/v1/quotas/tenant", json={"runs": len(used) + 5})).status_code == 200
    upstream.default = say("Yes.")

    async def one() -> httpx.Response:
        return await running.http.post("/v1/runs", json={"input": "May I?"}, headers={"accept": "application/json"})

    try:
        replies = await asyncio.gather(*(one() for _ in range(20)))
    finally:
        upstream.default = None
        await running.http.delete("/v1/quotas/tenant")
    refused = [reply for reply in replies if reply.status_code == 429]
    assert (len(replies) - len(refused), len(refused)) == (5, 15)
    assert {reply.json()["reason"] for reply in refused} == {"QUOTA_EXCEEDED"}
    assert all(int(reply.headers["retry-after"]) > 0 for reply in refused)


async def test_usage_counts_what_the_models_reported(running: Suite, upstream: Upstream) -> None:
    before = (await running.http.get("/v1/usage")).json()["days"]
    await start(running, upstream, "Count me?", "Counted.")
    after = (await running.http.get("/v1/usage")).json()["days"]

    def tokens(days: list[dict[str, Any]]) -> int:
        return sum(int(day["input_tokens"]) + int(day["output_tokens"]) for day in days)

    assert tokens(after) - tokens(before) == 12 + 5


async def test_a_model_with_that_role_gives_the_title_unless_the_user_did(upstream: Upstream) -> None:
    config = f"""
[models.namer]
upstream_name = "namer"
base_url = "{upstream.base_url}"
roles = ["title"]
"""
    async with suite(model=upstream.base_url, config=config, services=("approval", "orchestrator")) as running:
        upstream.script(say("2962 metres."), say('"Height of the Zugspitze"'))
        await ask(running, "How tall is it?")
        await upstream.next_request()
        titled = await upstream.next_request()
        assert titled.body["model"] == "namer"
        await titled.served.wait()
        async with asyncio.timeout(10):
            while (title := await first_title(running)) == "How tall is it?":
                await asyncio.sleep(0.02)  # the rename follows the reply and tells nobody
        assert title == "Height of the Zugspitze"


async def first_title(running: Suite) -> str:
    """Return the title of the newest conversation."""
    return str((await running.http.get("/v1/conversations")).json()["conversations"][0]["title"])
