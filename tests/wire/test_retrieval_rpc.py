"""Every RPC of retrieval over a unix socket, with words alone (vectors have tests of their own)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import grpc
import pytest

from proctor.agent.v1 import agent_pb2
from proctor.retrieval.v1 import retrieval_service_pb2 as retrieval_pb
from proctor.retrieval.v1 import source_service_pb2 as source_pb
from services.chassis.errors import from_rpc_error
from tests.support import retrieval_files as files
from tests.support.platform import principal, recorded_telemetry, test_platform
from tests.support.retrieval_service import Retrieval, parts, running

HOTELS = "# Travel\n\nHotels in Oslo cost up to 210 euro a night.\n\n## Cars\n\nThe mileage rate is 38 cents.\n"
LEAVE = "# 请假规定\n\n婚假为十天,需要提前两周申请。\n\n年假为十五天。\n"


@pytest.fixture
async def retrieval(tmp_path: Path) -> AsyncIterator[Retrieval]:
    async with running(tmp_path) as opened:
        yield opened


@pytest.fixture
async def filled(retrieval: Retrieval) -> Retrieval:
    await retrieval.create("handbook")
    await retrieval.ingest("handbook", {"travel.md": HOTELS, "leave.md": LEAVE})
    return retrieval


def reason(failure: pytest.ExceptionInfo[grpc.aio.AioRpcError]) -> tuple[grpc.StatusCode, str]:
    told = from_rpc_error(failure.value)
    return told.code, told.reason


# --- Sources ---------------------------------------------------------------------------------------------------------
async def test_a_source_is_made_listed_and_deleted(retrieval: Retrieval) -> None:
    topics = [source_pb.Topic(name="hotel", synonyms=["inn"])]
    made = await retrieval.create("handbook", topics=topics)

    assert (made.name, made.owner, made.shared, list(made.topics)) == ("handbook", "ann", True, topics)
    assert (await retrieval.sources())["handbook"] == made
    await retrieval.ingest("handbook", {"a.md": HOTELS})
    assert (await retrieval.sources())["handbook"].documents == 1
    request = source_pb.DeleteSourceRequest(source_id="handbook")
    assert (await retrieval.source_stub.DeleteSource(request, metadata=retrieval.metadata)).documents == 1
    assert await retrieval.sources() == {}
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        await retrieval.source_stub.DeleteSource(request, metadata=retrieval.metadata)
    assert reason(gone) == (grpc.StatusCode.NOT_FOUND, "SOURCE_NOT_FOUND")


async def test_a_name_is_taken_once_in_a_tenant(retrieval: Retrieval) -> None:
    await retrieval.create("handbook")
    await retrieval.as_(principal("ann", "elsewhere")).create("handbook")

    with pytest.raises(grpc.aio.AioRpcError) as taken:
        await retrieval.create("handbook")

    assert reason(taken) == (grpc.StatusCode.ALREADY_EXISTS, "SOURCE_EXISTS")


async def test_sources_and_documents_come_in_pages(retrieval: Retrieval) -> None:
    for name in "cab":
        await retrieval.create(name)
    await retrieval.ingest("a", {f"{n}.md": HOTELS for n in "zyx"} | {"w.txt": "words"})

    request = source_pb.ListSourcesRequest(page_size=2)
    first = await retrieval.source_stub.ListSources(request, metadata=retrieval.metadata)
    request.page_token = first.next_page_token
    second = await retrieval.source_stub.ListSources(request, metadata=retrieval.metadata)
    documents = source_pb.ListDocumentsRequest(source_id="a", page_size=2, path_glob="*.md")
    page = await retrieval.source_stub.ListDocuments(documents, metadata=retrieval.metadata)
    documents.page_token = page.next_page_token
    rest = await retrieval.source_stub.ListDocuments(documents, metadata=retrieval.metadata)

    assert [[s.name for s in listed.sources] for listed in (first, second)] == [["a", "b"], ["c"]]
    assert [[d.path for d in listed.documents] for listed in (page, rest)] == [["x.md", "y.md"], ["z.md"]]
    assert (second.next_page_token, rest.next_page_token) == ("", "")
    documents.source_id = "b"
    with pytest.raises(grpc.aio.AioRpcError) as foreign:
        await retrieval.source_stub.ListDocuments(documents, metadata=retrieval.metadata)
    assert reason(foreign) == (grpc.StatusCode.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID")


# --- Ingest ----------------------------------------------------------------------------------------------------------
async def test_progress_is_told_step_by_step(retrieval: Retrieval) -> None:
    await retrieval.create("handbook")

    steps = await retrieval.progress("handbook", {"a.md": HOTELS})

    names = [source_pb.DocumentState.Name(step.state).removeprefix("DOCUMENT_STATE_") for step in steps]
    assert names == ["QUEUED", "PARSING", "INDEXING", "DONE"]
    assert steps[-1].passages == 1
    document = (await retrieval.documents("handbook"))["a.md"]
    assert (document.title, document.media_type, document.size) == ("Travel", "text/markdown", len(HOTELS))
    assert len(document.content_hash) == 64


async def test_every_bad_file_is_reported_and_the_others_are_ingested(tmp_path: Path, retrieval: Retrieval) -> None:
    await retrieval.create("mixed")
    ended = await retrieval.ingest(
        "mixed",
        {
            "empty.txt": b"",
            "pictures.pdf": files.pdf([]),
            "locked.pdf": files.pdf([(10, "secret")], encrypted=True),
            "bomb.docx": files.zip_bomb_docx(),
            "old.doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 old",
            "scripts.html": "<html><script>steal()</script><p>The lift is out of order.</p>",
            "wrong.txt": files.docx_file(),
            "gbk.txt": "员工食堂中午十一点半开门供应午餐,周末休息。".encode("gbk"),
            "good.md": HOTELS,
        },
    )

    failed = {path: step.reason for path, step in ended.items() if step.state == source_pb.DOCUMENT_STATE_FAILED}
    assert failed == {
        "empty.txt": "EMPTY",
        "pictures.pdf": "NO_TEXT",
        "locked.pdf": "ENCRYPTED",
        "bomb.docx": "TOO_LARGE",
        "old.doc": "UNSUPPORTED_DOCUMENT",
    }
    assert all(ended[path].message for path in failed)
    assert {path for path in ended if path not in failed} == {"scripts.html", "wrong.txt", "gbk.txt", "good.md"}
    assert (await retrieval.search("食堂几点开门")).hits[0].title == "gbk"
    assert "steal" not in (await retrieval.search("is the lift out of order")).hits[0].text
    assert (await retrieval.documents("mixed"))["locked.pdf"].reason == "ENCRYPTED"


async def test_a_file_that_is_not_what_its_name_says_is_ingested_with_a_remark(retrieval: Retrieval) -> None:
    await retrieval.create("mixed")
    odd: dict[str, str | bytes] = {
        "plain.pdf": "The lift is out of order.",
        "page.csv": "<!doctype html><p>Page</p>",
        "word.pdf": files.docx_file(),
    }

    ended = await retrieval.ingest("mixed", {**odd, "good.md": HOTELS, "note.txt": "words"})

    told = {path: step.message for path, step in ended.items()}
    assert told == {
        "plain.pdf": "it is named .pdf but holds plain text, and was read as that",
        "page.csv": "",
        "word.pdf": "it is named .pdf but holds a Word document, and was read as that",
        "good.md": "",
        "note.txt": "",
    }
    assert {d.path for d in (await retrieval.documents("mixed")).values() if d.message} == {"plain.pdf", "word.pdf"}
    assert (await retrieval.search("is the lift out of order")).hits[0].title == "plain"


async def test_the_same_file_again_changes_nothing(filled: Retrieval) -> None:
    before = (await filled.documents("handbook"))["travel.md"]

    (step,) = await filled.progress("handbook", {"travel.md": HOTELS})

    assert step.unchanged
    assert (await filled.documents("handbook"))["travel.md"] == before


async def test_a_changed_file_replaces_what_it_was(filled: Retrieval) -> None:
    changed = HOTELS.replace("mileage rate is 38 cents", "parking fee is 12 euro")

    ended = await filled.ingest("handbook", {"travel.md": changed})

    assert not ended["travel.md"].unchanged
    assert (await filled.search("mileage rate")).hits == []
    assert "12 euro" in (await filled.search("parking fee")).hits[0].text
    assert len(await filled.documents("handbook")) == 2


async def test_a_version_that_cannot_be_read_leaves_the_one_before_searchable(filled: Retrieval) -> None:
    ended = await filled.ingest("handbook", {"travel.md": b""})

    assert ended["travel.md"].reason == "EMPTY"
    assert "38 cents" in (await filled.search("mileage rate")).hits[0].text
    assert (await filled.documents("handbook"))["travel.md"].reason == "EMPTY"


async def test_a_deleted_document_is_found_no_more(filled: Retrieval) -> None:
    document = (await filled.documents("handbook"))["travel.md"]
    request = source_pb.DeleteDocumentRequest(source_id="handbook", document_id=document.document_id)

    await filled.source_stub.DeleteDocument(request, metadata=filled.metadata)

    assert (await filled.search("mileage rate")).hits == []
    assert list(await filled.documents("handbook")) == ["leave.md"]
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        await filled.source_stub.DeleteDocument(request, metadata=filled.metadata)
    assert reason(gone) == (grpc.StatusCode.NOT_FOUND, "DOCUMENT_NOT_FOUND")


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([source_pb.IngestDocumentsRequest(chunk=b"x")], "before its header"),
        (
            [source_pb.IngestDocumentsRequest(header=source_pb.DocumentHeader(source_id="handbook", path="a"))],
            "ended inside a file",
        ),
        (
            [source_pb.IngestDocumentsRequest(header=source_pb.DocumentHeader(source_id="handbook", path="a"))] * 2,
            "before the file before",
        ),
    ],
)
async def test_parts_in_no_sensible_order_are_refused(
    filled: Retrieval, messages: list[source_pb.IngestDocumentsRequest], told: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        async for _ in filled.source_stub.IngestDocuments(iter(messages), metadata=filled.metadata):
            pass

    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert told in str(refused.value.details())


async def test_an_upload_into_no_source_is_refused(retrieval: Retrieval) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await retrieval.progress("nowhere", {"a.md": HOTELS})

    assert reason(refused) == (grpc.StatusCode.NOT_FOUND, "SOURCE_NOT_FOUND")


# --- Search ----------------------------------------------------------------------------------------------------------
async def test_a_hit_tells_what_it_is_where_it_stands_and_how_it_was_found(filled: Retrieval) -> None:
    found = await filled.search("What is the mileage rate?")

    (hit,) = found.hits
    assert (hit.title, hit.where, hit.kind) == ("Travel", "Travel > Cars", agent_pb2.EVIDENCE_KIND_PASSAGE)
    assert "The mileage rate is 38 cents." in hit.text
    assert 0.5 < hit.score <= 1
    assert (hit.provenance.lexical_rank, hit.provenance.vector_rank, hit.provenance.stage) == (1, 0, "question")
    assert hit.provenance.fused_score > 0
    assert hit.provenance.end - hit.provenance.start == len(hit.text)
    assert list(found.stages) == ["question"]
    assert found.took.ToNanoseconds() > 0


async def test_a_search_is_a_span_and_numbers_without_its_question(tmp_path: Path) -> None:
    recorded = recorded_telemetry()
    async with running(tmp_path, platform=test_platform(telemetry=recorded.telemetry)) as retrieval:
        await retrieval.create("handbook")
        await retrieval.ingest("handbook", {"travel.md": HOTELS})
        await retrieval.search("mileage rate", sources=["handbook"])
        await retrieval.search("dress code")

    found, empty = (span for span in recorded.spans() if span.name.startswith("retrieval"))
    assert found.name == "retrieval handbook"
    assert found.attributes is not None
    assert found.attributes["proctor.retrieval.hits_count"] == 1
    assert found.attributes["proctor.retrieval.stages"] == ("question",)
    assert "mileage" not in str(found.attributes)
    assert empty.attributes is not None
    assert empty.attributes["proctor.retrieval.hits_count"] == 0
    assert len(recorded.points("proctor.retrieval.duration")) == len(recorded.points("proctor.retrieval.empty")) == 1


async def test_chinese_questions_find_chinese_passages(filled: Retrieval) -> None:
    assert (await filled.search("婚假有几天?")).hits[0].title == "请假规定"


async def test_what_is_not_in_the_corpus_finds_nothing(filled: Retrieval) -> None:
    for question in ("What is the dress code?", "公司食堂几点开门?", "Who was the first man on the moon?"):
        found = await filled.search(question)
        assert found.hits == []
        assert found.stages[0] == "question"


async def test_a_follow_up_is_understood_by_its_history(filled: Retrieval) -> None:
    found = await filled.search("And in Oslo?", history=["What do hotels cost?"])

    assert "210 euro" in found.hits[0].text


async def test_filters_narrow_and_bad_ones_are_refused(filled: Retrieval) -> None:
    assert (await filled.search("mileage rate", filter="path ~ leave*")).hits == []
    assert len((await filled.search("mileage rate", filter="path ~ travel*")).hits) == 1
    assert (await filled.search("mileage rate", filter="path = none")).hits == []
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await filled.search("mileage rate", filter="colour = red")
    assert reason(refused) == (grpc.StatusCode.INVALID_ARGUMENT, "FILTER_INVALID")


async def test_limits_of_hits_and_characters_hold(retrieval: Retrieval) -> None:
    await retrieval.create("many")
    text = "The mileage rate is 38 cents. " * 20
    await retrieval.ingest("many", {f"{n}.md": f"# D{n}\n\n{text}" for n in range(8)})

    assert len((await retrieval.search("mileage rate")).hits) == 6
    assert len((await retrieval.search("mileage rate", top_k=8)).hits) == 8
    short = await retrieval.search("mileage rate", max_characters=700)
    assert sum(len(hit.text) for hit in short.hits) <= 700
    assert [notice.code for notice in short.notices] == ["truncated"]


async def test_a_source_and_a_retriever_that_do_not_exist_are_refused(filled: Retrieval) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as source:
        await filled.search("x", sources=["nowhere"])
    with pytest.raises(grpc.aio.AioRpcError) as retriever:
        await filled.search("x", retriever="psychic")

    assert reason(source) == (grpc.StatusCode.NOT_FOUND, "SOURCE_NOT_FOUND")
    assert retriever.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_topics_that_the_hits_leave_out_are_searched_for(retrieval: Retrieval) -> None:
    topics = [source_pb.Topic(name="hotel"), source_pb.Topic(name="visa", synonyms=["entry permit"])]
    await retrieval.create("s", topics=topics)
    hotels = {f"{n}.md": f"# Hotel {n}\n\nThe hotel limit for managers is {n} euro." for n in range(9)}
    await retrieval.ingest("s", hotels | {"visa.md": "# Papers\n\nAn entry permit takes ten days."})

    found = await retrieval.search("What are the hotel limit for managers and the visa rules?")

    assert list(found.stages)[-1] == "topic"
    assert [hit.provenance.stage for hit in found.hits if hit.title == "Papers"] == ["topic"]


# --- Passages, embeddings, web ---------------------------------------------------------------------------------------
async def test_a_passage_comes_with_what_stands_around_it(retrieval: Retrieval) -> None:
    await retrieval.create("long")
    sections = [f"## Section {n}\n\n" + f"Sentence of section {n}. " * 100 for n in range(3)]
    await retrieval.ingest("long", {"a.md": "\n\n".join(sections)})
    hit = (await retrieval.search("section 1 sentence", top_k=1)).hits[0]
    request = retrieval_pb.GetPassageRequest(passage_id=hit.passage_id)

    found = await retrieval.search_stub.GetPassage(request, metadata=retrieval.metadata)

    assert found.passage.text.startswith("## Section 1")
    assert not found.passage.HasField("score")
    assert found.before.endswith("Sentence of section 0.")
    assert found.after.startswith("## Section 2")
    assert len(found.before) == len(found.after) == 1000


async def test_a_passage_that_was_replaced_is_not_found(filled: Retrieval) -> None:
    hit = (await filled.search("mileage rate")).hits[0]
    await filled.ingest("handbook", {"travel.md": "# Other\n\ntext"})

    with pytest.raises(grpc.aio.AioRpcError) as gone:
        request = retrieval_pb.GetPassageRequest(passage_id=hit.passage_id)
        await filled.search_stub.GetPassage(request, metadata=filled.metadata)

    assert reason(gone) == (grpc.StatusCode.NOT_FOUND, "PASSAGE_NOT_FOUND")


async def test_what_is_not_configured_says_which_setting_it_needs(retrieval: Retrieval) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as embed:
        await retrieval.search_stub.Embed(retrieval_pb.EmbedRequest(texts=["x"]), metadata=retrieval.metadata)
    with pytest.raises(grpc.aio.AioRpcError) as web:
        await retrieval.search_stub.SearchWeb(retrieval_pb.SearchWebRequest(query="x"), metadata=retrieval.metadata)

    access = await retrieval.search_stub.GetWebAccess(retrieval_pb.GetWebAccessRequest(), metadata=retrieval.metadata)
    assert access.search_provider == ""
    for failure, setting in ((embed, "PROCTOR_RETRIEVAL_EMBEDDER"), (web, "PROCTOR_RETRIEVAL_WEB_SEARCH")):
        assert reason(failure) == (grpc.StatusCode.FAILED_PRECONDITION, "NOT_CONFIGURED")
        assert setting in str(failure.value.details())


async def test_private_pages_are_refused(retrieval: Retrieval) -> None:
    for url in ("http://127.0.0.1:8080/", "http://[::1]/", "http://169.254.169.254/latest", "ftp://example.org/"):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await retrieval.search_stub.FetchPage(retrieval_pb.FetchPageRequest(url=url), metadata=retrieval.metadata)
        assert reason(refused) == (grpc.StatusCode.INVALID_ARGUMENT, "URL_FORBIDDEN")


# --- Whose it is -----------------------------------------------------------------------------------------------------
async def test_another_tenant_sees_finds_and_changes_nothing(filled: Retrieval) -> None:
    source = (await filled.sources())["handbook"]
    document = (await filled.documents("handbook"))["travel.md"]
    passage = (await filled.search("mileage rate")).hits[0].passage_id
    rival = filled.as_(principal("ann", "rival"))
    stub, metadata = rival.source_stub, rival.metadata

    assert await rival.sources() == {}
    assert (await rival.search("mileage rate")).hits == []
    attempts: list[Awaitable[object]] = [
        rival.search("mileage rate", sources=[source.source_id]),
        rival.search("mileage rate", sources=["handbook"]),
        rival.search_stub.GetPassage(retrieval_pb.GetPassageRequest(passage_id=passage), metadata=metadata),
        stub.ListDocuments(source_pb.ListDocumentsRequest(source_id=source.source_id), metadata=metadata),
        stub.DeleteSource(source_pb.DeleteSourceRequest(source_id=source.source_id), metadata=metadata),
        stub.DeleteDocument(
            source_pb.DeleteDocumentRequest(source_id=source.source_id, document_id=document.document_id),
            metadata=metadata,
        ),
        rival.progress(source.source_id, {"evil.md": "text"}),
    ]
    for attempt in attempts:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await attempt
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    assert len((await filled.search("mileage rate")).hits) == 1


async def test_a_private_source_is_its_owners_alone(retrieval: Retrieval) -> None:
    await retrieval.create("diary", private=True)
    await retrieval.ingest("diary", {"a.md": HOTELS})
    bob = retrieval.as_(principal("bob", "local", "chat"))

    assert await bob.sources() == {}
    assert (await bob.search("mileage rate")).hits == []
    assert (await bob.search("mileage rate", filter="source = diary or path ~ *")).hits == []
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await bob.search("mileage rate", sources=["diary"])
    assert reason(refused) == (grpc.StatusCode.NOT_FOUND, "SOURCE_NOT_FOUND")


async def test_a_shared_source_is_changed_by_its_owner_alone(filled: Retrieval) -> None:
    bob = filled.as_(principal("bob", "local", "chat"))
    document = (await filled.documents("handbook"))["travel.md"]

    assert len((await bob.search("mileage rate")).hits) == 1
    delete = source_pb.DeleteDocumentRequest(source_id="handbook", document_id=document.document_id)
    changes: list[Awaitable[object]] = [
        bob.source_stub.DeleteSource(source_pb.DeleteSourceRequest(source_id="handbook"), metadata=bob.metadata),
        bob.source_stub.DeleteDocument(delete, metadata=bob.metadata),
        bob.progress("handbook", {"evil.md": "text"}),
    ]
    for attempt in changes:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await attempt
        assert reason(refused) == (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")


async def test_an_upload_goes_on_when_its_client_leaves(retrieval: Retrieval) -> None:
    await retrieval.create("handbook")
    call = retrieval.source_stub.IngestDocuments(parts("handbook", {"a.md": HOTELS}), metadata=retrieval.metadata)
    async for step in call:
        assert step.state == source_pb.DOCUMENT_STATE_QUEUED
        break
    call.cancel()

    while not (found := await retrieval.search("mileage rate")).hits:
        pass
    assert "38 cents" in found.hits[0].text
