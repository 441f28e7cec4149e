"""A workflow whose orchestrator is killed in one node after the other goes on there, and sends nothing twice."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support.http_site import site
from tests.support.processes import Processes, processes
from tests.support.suite_steps import answer_text, ask_until, follow, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import Reach, Say, Turn, Wait, say

FLOW = """
nodes:
  begin: {type: start, next: think}
  think: {type: agent, prompt: "What is to be sent?", next: agree}
  agree: {type: approval, message: "Send {{ nodes.think.text }}?", next: send}
  send: {type: http, method: POST, url: "URL/orders", body: "= nodes.think.text", next: done, on_error: unsure}
  done: {type: end, output: "Sent."}
  unsure: {type: end, output: "{{ nodes.think.text }} {{ nodes.send.error }}"}
"""
CONFIG = """
[agents.orders]
workflow = "FILE"
tools = [{ tool = "http_request", policy = "allow" }]
"""
SECONDS = 60.0


async def kill(running: Processes) -> None:
    await running.kill("orchestrator")
    await running.start("orchestrator")
    await running.ready()


async def read(running: Processes, run_id: str, until: str) -> dict[str, Any]:
    """Return the first event of a kind."""
    stream = follow(running, "GET", f"/v1/runs/{run_id}/events", Last_Event_ID="0")
    async with aclosing(stream) as events:
        async for event in events:
            if event["kind"] == until:
                return event
    raise AssertionError(f"the stream ended without {until}")


@pytest.mark.prove
async def test_a_workflow_survives_a_kill_in_each_of_its_nodes(tmp_path: Path) -> None:
    here, sent = asyncio.Event(), asyncio.Event()

    async def never(request: web.Request) -> web.StreamResponse:
        sent.set()
        await asyncio.Event().wait()
        raise AssertionError

    file = tmp_path / "orders.yaml"
    services = ("approval", "retrieval", "orchestrator")
    async with Upstream() as upstream, site(never) as shop:
        file.write_text(FLOW.replace("URL", shop.url), encoding="utf-8")
        async with processes(
            model=upstream.base_url,
            services=services,
            config=CONFIG.replace("FILE", str(file)),
            PROCTOR_ORCHESTRATOR_LEASE="1",
            PROCTOR_ORCHESTRATOR_HTTP_NETWORKS="127.0.0.0/8",
        ) as running:
            upstream.script(Turn(steps=(Say(pieces=("Two ap",)), Reach(event=here), Wait())), say("Two apples."))
            async with asyncio.timeout(SECONDS):
                seen = await ask_until(running, "answer_delta", "Order", agent_id="orders")
                await here.wait()
                await kill(running)  # in the middle of the agent's answer
                run_id = str(seen[0]["run_id"])
                asked = await read(running, run_id, "approval_requested")
                await kill(running)  # while a person thinks
                approval_id = asked["approval_requested"]["approval_id"]
                reply = await running.http.post(f"/v1/approvals/{approval_id}/decision", json={"decision": "approve"})
                reply.raise_for_status()
                await sent.wait()
                await kill(running)  # while the request is under way
                events = await watch(running, run_id)
    assert events[-1]["kind"] == "run_completed", events[-1]
    text = of(events, "run_completed")[0]["text"]
    assert text.startswith("Two apples. 'http_request' had started when the service was interrupted")
    assert len(shop.seen) == 1
    assert [step["step_id"] for step in of(events, "step_started")] == ["begin", "think", "agree", "send", "unsure"]
    assert len(of(events, "approval_requested")) == 1
    withdrawn = {gone["model_call_id"] for gone in of(events, "answer_retracted")}
    kept = [e for e in events if e["kind"] != "answer_delta" or e["answer_delta"]["model_call_id"] not in withdrawn]
    assert answer_text([event for event in kept if event["step_id"] == "think"]) == "Two apples."
    assert answer_text([event for event in kept if not event["step_id"]]) == text
