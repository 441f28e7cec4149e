"""Listing and reading documents over a unix socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from proctor.retrieval.v1 import source_service_pb2 as source_pb
from services.chassis.errors import from_rpc_error
from tests.support import retrieval_files as files
from tests.support.platform import principal
from tests.support.retrieval_service import Retrieval, running

SECTIONS = [f"## Section {n}\n\n" + f"Sentence {n}. " * 300 for n in range(5)]
LONG = "# Long\n\n" + "\n\n".join(SECTIONS)


@pytest.fixture
async def retrieval(tmp_path: Path) -> AsyncIterator[Retrieval]:
    async with running(tmp_path) as opened:
        await opened.create("one")
        await opened.create("two")
        await opened.ingest("one", {"long.md": LONG, "both.md": "# Same\n\nIn one."})
        await opened.ingest(
            "two",
            {
                "both.md": "# Same\n\nIn two.",
                "pages.pdf": files.pdf([(12, "Alpha " * 12)] * 9, [(12, "Beta " * 12)] * 9),
            },
        )
        yield opened


async def read(retrieval: Retrieval, document: str, **fields: object) -> source_pb.ReadDocumentResponse:
    request = source_pb.ReadDocumentRequest(document=document, **fields)  # type: ignore[arg-type]
    return await retrieval.source_stub.ReadDocument(request, metadata=retrieval.metadata)


async def listed(retrieval: Retrieval, **fields: object) -> source_pb.ListDocumentsResponse:
    request = source_pb.ListDocumentsRequest(**fields)  # type: ignore[arg-type]
    return await retrieval.source_stub.ListDocuments(request, metadata=retrieval.metadata)


async def test_a_document_is_read_to_its_end_in_steps_that_join(retrieval: Retrieval) -> None:
    whole = await read(retrieval, "long.md", max_characters=200_000)

    pieces: list[source_pb.DocumentPart] = []
    offset = 0
    while True:
        step = await read(retrieval, "long.md", offset=offset, max_characters=3_000)
        pieces.extend(step.parts)
        assert sum(len(part.text) for part in step.parts) <= 3_000
        offset = step.next_offset
        if not offset:
            break

    assert (whole.document.path, whole.document.source_name, whole.next_offset) == ("long.md", "one", 0)
    assert whole.characters == whole.parts[-1].end
    text = "\n\n".join(part.text for part in whole.parts)
    assert len(text) == whole.characters
    assert [text[part.start : part.end] for part in pieces] == [part.text for part in pieces]
    assert sum(len(part.text) for part in pieces) == sum(len(part.text) for part in whole.parts)
    assert pieces[-1].where == "Long > Section 4"
    assert (await read(retrieval, "long.md", offset=10**9)).parts == []


async def test_reading_begins_at_a_page(retrieval: Retrieval) -> None:
    found = await read(retrieval, "pages.pdf", page=2)

    assert [(part.where, "Beta" in part.text, "Alpha" in part.text) for part in found.parts] == [("p. 2", True, False)]
    assert found.parts[0].start > 0
    assert (await read(retrieval, "pages.pdf", page=9)).parts == found.parts
    assert (await read(retrieval, "long.md", page=2)).parts[0].start == 0


async def test_a_path_that_two_sources_have_asks_for_one_of_them(retrieval: Retrieval) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as several:
        await read(retrieval, "both.md")

    assert from_rpc_error(several.value).code is grpc.StatusCode.INVALID_ARGUMENT
    assert "'one'" in str(several.value.details())
    (part,) = (await read(retrieval, "both.md", sources=["two"])).parts
    assert "In two." in part.text
    by_id = await read(retrieval, (await retrieval.documents("one"))["both.md"].document_id)
    assert "In one." in by_id.parts[0].text
    assert (await read(retrieval, "Long")).document.path == "long.md"


async def test_documents_of_several_sources_are_listed_by_path_in_pages(retrieval: Retrieval) -> None:
    first = await listed(retrieval, sources=["two", "one"], page_size=2)
    rest = await listed(retrieval, sources=["one", "two"], page_size=2, page_token=first.next_page_token)

    assert [(one.path, one.source_name) for one in (*first.documents, *rest.documents)][2:] == [
        ("long.md", "one"),
        ("pages.pdf", "two"),
    ]
    assert {(one.path, one.source_name) for one in first.documents} == {("both.md", "one"), ("both.md", "two")}
    assert rest.next_page_token == ""
    assert [one.path for one in (await listed(retrieval, filter="type = pdf")).documents] == ["pages.pdf"]
    assert [one.path for one in (await listed(retrieval, path_glob="l*")).documents] == ["long.md"]


async def test_what_is_anothers_is_neither_listed_nor_read(retrieval: Retrieval) -> None:
    await retrieval.create("diary", private=True)
    await retrieval.ingest("diary", {"secret.md": "# Secret\n\nNothing."})
    secret = (await retrieval.documents("diary"))["secret.md"].document_id
    for stranger in (principal("bob", "local", "chat"), principal("ann", "rival")):
        other = retrieval.as_(stranger)
        for attempt in (read(other, secret), read(other, "secret.md"), read(other, secret, sources=["diary"])):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await attempt
            assert from_rpc_error(refused.value).code is grpc.StatusCode.NOT_FOUND
        assert "secret.md" not in {one.path for one in (await listed(other)).documents}
    # An agent that may use one source reads no other, though its user may.
    with pytest.raises(grpc.aio.AioRpcError):
        await read(retrieval, secret, sources=["one"])
