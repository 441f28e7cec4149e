"""Questions rewritten and translated by a scripted model, asked only when that may help and never in the way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.retrieval.settings import EmbedderChoice, Settings
from tests.support.retrieval_service import Retrieval, running
from tests.support.upstream import Upstream
from tests.support.upstream_script import fail, say

FILES = {"travel.md": "# Travel\n\nHotels in Oslo cost up to 210 euro a night.", "leave.md": "# 请假\n\n婚假为十天。"}


@pytest.fixture
async def model() -> AsyncIterator[Upstream]:
    async with Upstream(default=fail(500)) as upstream:
        yield upstream


@pytest.fixture
async def retrieval(tmp_path: Path, model: Upstream) -> AsyncIterator[Retrieval]:
    settings = Settings(embedder=EmbedderChoice.NONE, rewrite_model="scripted", rewrite_base_url=model.base_url)
    async with running(tmp_path, settings) as opened:
        await opened.create("handbook")
        await opened.ingest("handbook", FILES)
        yield opened


async def test_a_question_that_is_answered_as_asked_costs_no_call(retrieval: Retrieval, model: Upstream) -> None:
    assert "210 euro" in (await retrieval.search("What do hotels in Oslo cost?")).hits[0].text
    assert model.requests == []


async def test_a_question_in_another_language_than_the_answer_is_translated(
    retrieval: Retrieval, model: Upstream
) -> None:
    model.script(say("How many days of marriage leave are there?\n婚假有几天?"))

    found = await retrieval.search("How many days of marriage leave are there?")

    assert found.hits[0].title == "请假"
    assert len(model.requests) == 1


async def test_a_follow_up_is_made_whole_by_the_model(retrieval: Retrieval, model: Upstream) -> None:
    model.script(say("What do hotels in Oslo cost?\n奥斯陆的酒店多少钱?"))

    found = await retrieval.search("And there?", history=["How dear is a stay in Oslo?"])

    assert "210 euro" in found.hits[0].text
    assert "How dear is a stay in Oslo?" in str(model.requests[0].body)


async def test_a_model_that_fails_leaves_the_local_way(retrieval: Retrieval, model: Upstream) -> None:
    found = await retrieval.search("And in Oslo?", history=["What do hotels cost?"])

    assert "210 euro" in found.hits[0].text
    assert (await retrieval.search("Who walked on the moon?")).hits == []
    assert len(model.requests) >= 2
