"""What models are really sent: small windows, reused call ids, the language, pages of a PDF, too many tools."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.retrieval_files import pdf
from tests.support.suite import Suite, suite
from tests.support.suite_steps import ask, of
from tests.support.upstream import Upstream
from tests.support.upstream_script import say

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = """
[models.tiny]
upstream_name = "tiny"
base_url = "{url}"
window = 8000

[models.seeing]
upstream_name = "seeing"
base_url = "{url}"
capabilities = ["tools", "vision"]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream) -> AsyncIterator[Suite]:
    async with suite(
        model=upstream.base_url,
        config=CONFIG.format(url=upstream.base_url),
        services=("approval", "retrieval", "orchestrator"),
        PROCTOR_ORCHESTRATOR_MAX_TOOLS="8",
    ) as started:
        yield started


async def test_a_small_window_with_long_history_and_a_long_question_never_overflows(
    running: Suite, upstream: Upstream
) -> None:
    history = [
        {"role": role, "content": f"{role} {number} " + "words of an earlier turn " * 200}
        for number in range(20)
        for role in ("user", "assistant")
    ]
    upstream.default = say("Fine.")
    question = "BEGIN " + "long question " * 3_000 + " END?"
    events = await ask(running, question, history=history, model="tiny")
    upstream.default = None
    assert events[-1]["kind"] == "run_completed", events[-1]
    sent = upstream.requests[-1]
    characters = sum(len(m["content"] or "") for m in sent.messages)
    assert characters < 8_000 * 4
    assert sent.last_text.startswith("BEGIN")
    assert sent.last_text.endswith("END?")


async def test_the_newest_turns_are_the_ones_kept(running: Suite, upstream: Upstream) -> None:
    history = [
        {"role": role, "content": f"{role} {number} " + "text " * 400}
        for number in range(12)
        for role in ("user", "assistant")
    ]
    upstream.default = say("Fine.")
    await ask(running, "And now?", history=history, model="tiny")
    upstream.default = None
    told = [m["content"] for m in upstream.requests[-1].messages]
    assert any(text.startswith("assistant 11") for text in told)
    assert not any(text.startswith("user 0") for text in told)


async def test_history_with_reused_call_ids_is_sent_with_unique_ones(running: Suite, upstream: Upstream) -> None:
    def turn(number: int) -> list[dict[str, object]]:
        call = {"call_id": "call_1", "name": "search", "arguments_json": {"query": str(number)}}
        return [
            {"role": "user", "content": f"q{number}"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": f"r{number}", "tool_call_id": "call_1", "tool_name": "search"},
            {"role": "assistant", "content": f"a{number}"},
        ]

    upstream.script(say("Fine."))
    await ask(running, "And now?", history=[*turn(1), *turn(2)])
    messages = upstream.requests[-1].messages
    ids = [call["id"] for m in messages for call in m.get("tool_calls") or ()]
    assert len(ids) == len(set(ids)) == 2
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == ids


async def test_the_model_is_told_to_answer_and_think_in_the_users_language(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("好。"), say("Bien."))
    await ask(running, "婚假有几天？")
    assert "the language of the user's question, and think in it too" in upstream.requests[-1].messages[0]["content"]
    french = {"name": "parleur", "language": "fr"}
    await ask(running, "How are you?", inline_agent=french)
    assert "the language with the tag fr, and think in it too" in upstream.requests[-1].messages[0]["content"]


async def test_pages_of_a_pdf_are_shown_to_a_model_that_sees_and_its_text_to_every_model(
    running: Suite, upstream: Upstream
) -> None:
    reply = await running.http.post("/v1/attachments", files={"file": ("offer.pdf", pdf([(24.0, "Total 4711 EUR")]))})
    attachment = reply.json()["artifact_id"]
    upstream.script(say("4711."), say("4711."))
    await ask(running, "What is the total?", attachments=[attachment], model="seeing")
    content = json.dumps(upstream.requests[-1].messages[-1]["content"])
    assert "Total 4711 EUR" in content
    assert content.count("data:image/png;base64,") == 1
    await ask(running, "What is the total?", attachments=[attachment])
    content = json.dumps(upstream.requests[-1].messages[-1]["content"])
    assert "Total 4711 EUR" in content
    assert "image/png" not in content


async def test_more_tools_than_the_model_takes_are_narrowed_by_relevance(running: Suite, upstream: Upstream) -> None:
    tools = [
        {"name": f"tool_{i}", "description": "Does something else.", "parameters_json": {"type": "object"}}
        for i in range(40)
    ] + [{"name": "get_weather", "description": "Weather forecast", "parameters_json": {"type": "object"}}]
    upstream.script(say("Sunny."))
    events = await ask(running, "What is the weather in Oslo?", client_tools=tools)
    assert of(events, "run_completed")
    offered = [tool["function"]["name"] for tool in upstream.requests[-1].body["tools"]]
    assert len(offered) == 8
    assert {"get_weather", "search"} <= set(offered)
