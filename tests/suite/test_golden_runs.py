"""What a run of each agent tells, event by event, against transcripts that are checked in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden import assert_golden, transcript
from tests.support.suite import Suite
from tests.support.suite_steps import ask
from tests.support.upstream import Upstream
from tests.support.upstream_script import call, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
GOLDEN = Path(__file__).parent / "golden"
QUESTION = "What is the mileage rate for cars?"


async def test_a_classic_run_tells_the_same_as_ever(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("The rate is ", "EUR 0.38 [1]."))
    events = await ask(running, QUESTION, agent_id="classic")
    assert_golden(GOLDEN / "classic.txt", transcript(events))


async def test_an_agentic_run_tells_the_same_as_ever(running: Suite, upstream: Upstream) -> None:
    upstream.script(
        call("search", '{"query": "mileage rate cars", "reason": "to look it up"}'),
        say("The rate is ", "EUR 0.38 [1]."),
    )
    events = await ask(running, QUESTION, agent_id="assistant")
    assert_golden(GOLDEN / "agentic.txt", transcript(events))
