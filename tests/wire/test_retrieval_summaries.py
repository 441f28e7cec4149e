"""Summaries by a scripted model: made behind, found as evidence of their own kind, gone with their document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proctor.agent.v1 import agent_pb2
from proctor.retrieval.v1 import retrieval_service_pb2 as retrieval_pb
from proctor.retrieval.v1 import source_service_pb2 as source_pb
from services.retrieval.settings import EmbedderChoice, Settings
from tests.support.retrieval_service import Retrieval, running
from tests.support.upstream import Upstream
from tests.support.upstream_script import fail, say

ATLAS = "# Atlas\n\n" + "\n\n".join(f"## Part {n}\n\n" + f"Sentence {n} speaks of nothing. " * 140 for n in range(9))
SUMMARY = "Every sentence speaks of zeppelin maintenance in Friedrichshafen."


@pytest.fixture
async def model() -> AsyncIterator[Upstream]:
    async with Upstream(default=say(SUMMARY)) as upstream:
        yield upstream


def settings(model: Upstream) -> Settings:
    return Settings(embedder=EmbedderChoice.NONE, summary_model="scripted", summary_base_url=model.base_url)


async def summarised(retrieval: Retrieval, source: str = "books") -> source_pb.Source:
    while (found := (await retrieval.sources())[source]).summaries_pending:
        await asyncio.sleep(0.05)
    return found


async def read(retrieval: Retrieval, document: str) -> source_pb.ReadDocumentResponse:
    request = source_pb.ReadDocumentRequest(document=document, max_characters=100_000)
    return await retrieval.source_stub.ReadDocument(request, metadata=retrieval.metadata)


async def test_a_summary_is_found_as_its_own_kind_but_never_beside_its_passages(
    tmp_path: Path, model: Upstream
) -> None:
    async with running(tmp_path, settings(model)) as retrieval:
        await retrieval.create("books")
        await retrieval.ingest("books", {"atlas.md": ATLAS, "note.md": "# Note\n\nToo short to be summarised."})
        source = await summarised(retrieval)

        (hit,) = (await retrieval.search("zeppelin maintenance")).hits
        assert (hit.kind, hit.title, hit.text) == (agent_pb2.EVIDENCE_KIND_SUMMARY, "Atlas", SUMMARY)
        # A passage takes the place of its document's summary.
        both = (await retrieval.search("Which sentence speaks?")).hits
        assert {one.kind for one in both} == {agent_pb2.EVIDENCE_KIND_PASSAGE}
        asked = retrieval_pb.GetPassageRequest(passage_id=hit.passage_id)
        found = await retrieval.search_stub.GetPassage(asked, metadata=retrieval.metadata)
        assert (found.passage.kind, found.before, found.after) == (agent_pb2.EVIDENCE_KIND_SUMMARY, "", "")
        whole = await read(retrieval, "atlas.md")
        assert (whole.summary, whole.parts[0].text[:7]) == (SUMMARY, "# Atlas")
        assert source.passages == len(whole.parts) + 1  # the note has one; the summary counts for none
        (request,) = model.requests
        assert "# Atlas" in str(request.body)
        assert "Sentence 8" in str(request.body)  # the end of a long document is read too


async def test_a_changed_document_gets_a_new_summary_and_a_deleted_one_leaves_none(
    tmp_path: Path, model: Upstream
) -> None:
    async with running(tmp_path, settings(model)) as retrieval:
        await retrieval.create("books")
        await retrieval.ingest("books", {"atlas.md": ATLAS})
        await summarised(retrieval)
        model.script(say("Now about submarines."))
        await retrieval.ingest("books", {"atlas.md": ATLAS + "\n\nMore."})
        await summarised(retrieval)

        assert (await retrieval.search("zeppelin maintenance")).hits == []
        assert (await retrieval.search("submarines")).hits[0].kind == agent_pb2.EVIDENCE_KIND_SUMMARY
        document = (await retrieval.documents("books"))["atlas.md"].document_id
        delete = source_pb.DeleteDocumentRequest(source_id="books", document_id=document)
        await retrieval.source_stub.DeleteDocument(delete, metadata=retrieval.metadata)
        assert (await retrieval.search("submarines")).hits == []


async def test_a_model_that_fails_is_asked_again_also_after_a_restart(tmp_path: Path, model: Upstream) -> None:
    model.default = fail(400)
    async with running(tmp_path, settings(model)) as before:
        await before.create("books")
        await before.ingest("books", {"atlas.md": ATLAS})
        await model.next_request()
        assert (await before.sources())["books"].summaries_pending == 1
        assert len((await before.search("sentence 4 speaks")).hits) > 0
    model.default = say(SUMMARY)
    async with running(tmp_path, settings(model)) as after:
        await summarised(after)
        assert (await after.search("zeppelin maintenance")).hits[0].text == SUMMARY
