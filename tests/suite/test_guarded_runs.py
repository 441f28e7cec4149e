"""Guardrails in a run: the user's words are hidden before they are kept, answers hidden, refused and withdrawn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.chassis import names
from tests.support.platform import Recorded, test_platform
from tests.support.suite import Suite, suite
from tests.support.suite_steps import answer_text, ask, of
from tests.support.upstream import Upstream
from tests.support.upstream_script import say

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = """
[guardrails.private]
kind = "personal_data"
fail = "closed"

[guardrails.words]
kind = "patterns"
patterns = ["(?i)forbidden word"]
message = "that word is not used here"
fail = "closed"
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream, recorded: Recorded) -> AsyncIterator[Suite]:
    platform = test_platform(telemetry=recorded.telemetry)
    services = ("approval", "retrieval", "orchestrator")
    async with suite(model=upstream.base_url, config=CONFIG, platform=platform, services=services) as started:
        yield started


async def test_personal_data_is_hidden_on_its_way_in_and_out_and_stands_nowhere(
    running: Suite, upstream: Upstream, recorded: Recorded
) -> None:
    upstream.script(say("Write ", "to bob@exa", "mple.com, IBAN DE89 3704 0044 ", "0532 0130 00."))

    events = await ask(running, "I am ann.secret@example.com, card 4111 1111 1111 1111.")

    assert events[-1]["kind"] == "run_completed"
    assert "[e-mail], card [card]" in upstream.requests[-1].last_text
    assert answer_text(events) == "Write to [e-mail], IBAN [IBAN]."
    assert of(events, "run_completed")[0]["text"] == "Write to [e-mail], IBAN [IBAN]."
    notices = [notice["text"] for notice in of(events, "notice")]
    assert notices == [
        "'private' changed your message: [card] ×1, [e-mail] ×1.",
        "'private' changed the answer: [e-mail] ×1, [IBAN] ×1.",
    ]
    for path in Path(running.folder).rglob("*.sqlite3*"):
        content = path.read_bytes()
        assert b"ann.secret" not in content, path
        assert b"bob@exa" not in content, path
    counted = [dict(point.attributes) for point in recorded.points(names.GUARDRAIL_ACTIONS.name)]  # type: ignore[attr-defined]
    assert {point[names.GUARDRAIL_STAGE] for point in counted} == {"input", "output"}


async def test_a_refused_question_starts_no_run(running: Suite, upstream: Upstream) -> None:
    before = len(upstream.requests)

    reply = await running.http.post("/v1/runs", json={"input": "Say the forbidden word."})

    assert (reply.status_code, reply.json()["reason"]) == (409, "INPUT_REFUSED")
    assert "that word is not used here" in reply.json()["detail"]
    assert len(upstream.requests) == before


async def test_a_refused_answer_is_withdrawn_and_what_stands_is_kept(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("It is the forbidden word. " + "x" * 150, " And more."))

    events = await ask(running, "What is it?")

    assert len(of(events, "answer_retracted")) == 1
    completed = of(events, "run_completed")[0]
    assert completed["text"] == "This answer was withheld: that word is not used here"
    assert completed["finish_reason"] == "content_filter"


async def test_a_wire_that_can_withdraw_nothing_ends_with_an_error(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("It is the forbidden word."))

    body = {"model": "scripted", "messages": [{"role": "user", "content": "What is it?"}]}
    reply = await running.http.post("/v1/chat/completions", json=body)

    assert reply.status_code >= 400
    assert "that word is not used here" in reply.text
