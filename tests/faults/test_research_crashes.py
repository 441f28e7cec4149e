"""A research run whose orchestrator is killed in the plan, in a step and in the answer comes to its answer."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.processes import processes
from tests.support.research_script import ResearchScript
from tests.support.suite_steps import answer_text, ask_until, of, watch
from tests.support.upstream import Upstream

CONFIG = '[agents.scholar]\ntype = "research"\ntools = ["search"]\n'
SECONDS = 120.0


@pytest.mark.prove
@pytest.mark.timeout(300)
async def test_a_research_run_survives_a_kill_in_each_of_its_stages() -> None:
    script = ResearchScript(stall="plan")
    services = ("approval", "retrieval", "orchestrator")
    async with (
        Upstream(default=script) as upstream,
        processes(
            model=upstream.base_url,
            services=services,
            config=CONFIG,
            PROCTOR_ORCHESTRATOR_LEASE="4",
            PROCTOR_ORCHESTRATOR_MAX_ATTEMPTS="20",
        ) as running,
    ):
        seen = await ask_until(running, "run_started", "Compare them.", agent_id="scholar")
        for stage in ("step", "answer", ""):
            async with asyncio.timeout(SECONDS):
                await script.stalled.wait()
            script.stalled.clear()
            script.stall = stage
            await running.kill("orchestrator")
            await running.start("orchestrator")
        await running.ready()
        async with asyncio.timeout(SECONDS):
            events = await watch(running, seen[0]["run_id"])
    assert events[-1]["kind"] == "run_completed", events[-1]
    (completed,) = of(events, "run_completed")
    assert completed["text"] == "".join(script.answer)
    assert len(of(events, "plan_made")) == 1
    assert sorted(step["step_id"] for step in of(events, "step_started")) == ["step-1", "step-2"]
    assert sorted(step["step_id"] for step in of(events, "step_finished")) == ["step-1", "step-2"]
    # What the dead owners had shown of the answer is withdrawn, and no step's text is part of it.
    withdrawn = {gone["model_call_id"] for gone in of(events, "answer_retracted")}
    kept = [e for e in events if e["kind"] != "answer_delta" or e["answer_delta"]["model_call_id"] not in withdrawn]
    assert answer_text([event for event in kept if not event["step_id"]]) == completed["text"]
    assert script.seen.count("plan") >= 2
    assert script.seen.count("answer") >= 2
