"""How sources are searched is the agent's and the request's to say, and the model may search a part of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.suite import Suite, suite
from tests.support.suite_steps import ask, ingest_handbook, of
from tests.support.upstream import Upstream
from tests.support.upstream_script import Turn, call, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUESTION = "What is the mileage rate for cars?"
# Several documents speak of it.
BROAD = "Who approves expenses?"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream) -> AsyncIterator[Suite]:
    async with suite(model=upstream.base_url, services=("approval", "retrieval", "orchestrator")) as started:
        await ingest_handbook(started)
        yield started


def texts(events: list[dict[str, Any]]) -> list[str]:
    return [item["evidence"]["text"] for item in of(events, "evidence_added")]


def within(path: str) -> Turn:
    return call("search", json.dumps({"query": QUESTION, "path": path, "reason": "to look there"}))


async def test_the_agent_says_how_much_a_search_brings_and_the_request_overrides_it(
    running: Suite, upstream: Upstream
) -> None:
    agent = {"name": "brief", "type": "classic", "sources": ["handbook"], "searching": {"top_k": 1}}
    made = await running.http.post("/v1/agents", json={"agent": agent})
    assert made.status_code == 201, made.text
    assert made.json()["agent"]["searching"]["top_k"] == 1

    upstream.script(say("[1]"), say("[1]"), say("[1]"))
    one = texts(await ask(running, BROAD, agent_id="brief"))
    more = texts(await ask(running, BROAD, agent_id="brief", searching={"top_k": 3}))
    short = texts(await ask(running, BROAD, agent_id="brief", searching={"max_characters": 300}))

    assert len(one) == 1
    assert len(more) > 1
    assert len(short) == 1
    assert len(short[0]) <= 300 < len(one[0])


async def test_an_unknown_retriever_is_told_with_those_there_are(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("I do not know."))
    events = await ask(running, QUESTION, agent_id="classic", searching={"retriever": "oracle"})

    (notice,) = [one for one in of(events, "notice") if one["code"] == "source_failed"]
    assert "there is no retriever 'oracle'; use one of hybrid, lexical" in notice["text"]


async def test_the_model_may_search_the_documents_of_a_path_alone(running: Suite, upstream: Upstream) -> None:
    upstream.script(*(within(path) for path in ("remote*", 'x\\" or path ~ "*', "travel*.md")), say("EUR 0.38 [1]."))
    events = await ask(running, QUESTION, agent_id="assistant")

    found = [item["evidence"] for item in of(events, "evidence_added")]
    assert {item["title"] for item in found if "0.38" in item["text"]} == {"Travel and expenses"}
    assert "0.38" not in upstream.requests[1].last_text
    assert "found nothing" in upstream.requests[2].last_text
    assert "EUR 0.38" in upstream.requests[3].last_text
