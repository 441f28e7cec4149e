"""The catalogue on SQLite and PostgreSQL: documents through their ingest, vocabulary, purges, the vector queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from services.chassis.database import migrate, open_engine
from services.chassis.identity import Principal
from services.retrieval.adapters.sql import vocabulary
from services.retrieval.adapters.sql.documents import SqlDocuments
from services.retrieval.adapters.sql.embed_queue import LEASE, SqlEmbedQueue
from services.retrieval.adapters.sql.passages import SqlPassages
from services.retrieval.adapters.sql.sources import SqlSources
from services.retrieval.adapters.sql.vocabulary import count_terms
from services.retrieval.domain.errors import DocumentNotFound, SourceExists, SourceNotFound
from services.retrieval.domain.filters import parse
from services.retrieval.domain.library import (
    Document,
    DocumentState,
    Passage,
    Source,
    SourceCounts,
    Span,
    Topic,
    Upload,
    passage_id,
    revision_of,
)
from services.retrieval.domain.search import Scope
from tests.support.clock import START, FakeClock, SequentialIds

ANN = Principal(tenant="t1", user="ann")
SCOPE = Scope(tenant="t1", sources=("s1",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    clock: FakeClock
    sources: SqlSources
    documents: SqlDocuments
    passages: SqlPassages
    queue: SqlEmbedQueue

    async def admit(self, path: str = "a.md", content: str = "one", document_id: str = "d1") -> tuple[Document, str]:
        staged = f"staged-{content}"
        admission = await self.documents.admit(upload(path, content), document_id)
        assert not admission.unchanged
        return admission.document, staged

    async def publish(
        self, path: str = "a.md", content: str = "one", *, embed: bool = False, parts: int = 2
    ) -> Document:
        """Ingest a document of `parts` passages, each saying `content`."""
        document, staged = await self.admit(path, content, f"d-{path}")
        document = replace(
            document, title="Title", revision=revision_of(document.id, content), content_hash=content, passages=parts
        )
        written = [passage(document, n, content) for n in range(parts)]
        assert await self.documents.write(written)
        terms = count_terms(p.text for p in written)
        assert await self.documents.publish(document, staged, terms, embed=embed)
        return document


@pytest.fixture
async def catalogue(database_url: str) -> AsyncIterator[Catalogue]:
    engine = open_engine(database_url)
    await migrate(engine, "services.retrieval:migrations")
    clock, ids = FakeClock(), SequentialIds()
    opened = Catalogue(
        clock=clock,
        sources=SqlSources(engine, clock, ids),
        documents=SqlDocuments(engine, clock, ids),
        passages=SqlPassages(engine),
        queue=SqlEmbedQueue(engine, clock),
    )
    await opened.sources.create(source("s1", "handbook"))
    yield opened
    await engine.dispose()


def source(identity: str, name: str, *, tenant: str = "t1", owner: str = "ann", shared: bool = True) -> Source:
    return Source(
        id=identity,
        tenant=tenant,
        name=name,
        owner=owner,
        description="",
        shared=shared,
        created_at=START,
        topics=(Topic(name="旅行", synonyms=("trip",)),),
    )


def upload(path: str, content: str, source_id: str = "s1") -> Upload:
    return Upload(
        tenant="t1",
        source_id=source_id,
        path=path,
        staged=f"staged-{content}",
        size=len(content),
        content_hash=content,
        url="https://example.org/a",
        metadata={"department": "HR"},
    )


def passage(document: Document, ordinal: int, text: str) -> Passage:
    return Passage(
        id=passage_id(document.revision, ordinal),
        tenant="t1",
        source_id=document.source_id,
        document_id=document.id,
        revision=document.revision,
        ordinal=ordinal,
        text=text,
        start=ordinal * 10,
        spans=(Span(start=0, end=len(text), heading="标题", page=3),),
    )


# --- Sources ---------------------------------------------------------------------------------------------------------
async def test_sources_are_read_by_those_who_may(catalogue: Catalogue) -> None:
    await catalogue.sources.create(source("s2", "diary", owner="bob", shared=False))
    await catalogue.sources.create(source("s3", "handbook", tenant="t2"))
    bob = Principal(tenant="t1", user="bob")

    assert [s.id for s in await catalogue.sources.readable(ANN)] == ["s1"]
    assert [s.id for s in await catalogue.sources.readable(bob)] == ["s2", "s1"]
    assert await catalogue.sources.find(ANN, "handbook") == await catalogue.sources.find(ANN, "s1")
    assert (await catalogue.sources.find(ANN, "s1")).topics[0].synonyms == ("trip",)
    for unknown in ("diary", "s2", "s3"):
        with pytest.raises(SourceNotFound):
            await catalogue.sources.find(ANN, unknown)


async def test_an_equal_name_in_one_tenant_is_refused(catalogue: Catalogue) -> None:
    with pytest.raises(SourceExists):
        await catalogue.sources.create(source("s9", "handbook"))


async def test_removing_a_source_forgets_all_and_leaves_one_purge(catalogue: Catalogue) -> None:
    await catalogue.publish("a.md")
    await catalogue.publish("b.md")

    assert await catalogue.sources.remove(await catalogue.sources.find(ANN, "s1")) == 2

    (purge,) = await catalogue.documents.purges()
    assert (purge.source_id, purge.document_id, purge.revision) == ("s1", "", "")
    assert (await catalogue.passages.term_counts(SCOPE, ["one"])).passages == 0
    await catalogue.documents.purged(purge.id)
    assert await catalogue.documents.purges() == []


# --- Documents -------------------------------------------------------------------------------------------------------
async def test_a_published_document_is_located_and_counted(catalogue: Catalogue) -> None:
    document = await catalogue.publish(content="mileage rate")
    ids = [passage_id(document.revision, n) for n in range(2)]

    located = await catalogue.passages.locate(SCOPE, ids)
    counts = await catalogue.passages.term_counts(SCOPE, ["mileag", "hotel"])

    assert set(located) == set(ids)
    one = located[ids[1]]
    assert (one.title, one.path, one.url, one.passage.start) == ("Title", "a.md", "https://example.org/a", 10)
    assert one.passage.spans == (Span(start=0, end=12, heading="标题", page=3),)
    assert (counts.passages, dict(counts.holding)) == (2, {"mileag": 2})
    assert (await catalogue.sources.counts(["s1"]))["s1"] == SourceCounts(documents=1, passages=2)


async def test_nothing_is_located_before_it_is_published_or_outside_the_scope(catalogue: Catalogue) -> None:
    document, _ = await catalogue.admit()
    document = replace(document, revision="r")
    await catalogue.documents.write([passage(document, 0, "hidden")])
    published = await catalogue.publish("b.md")
    shown = [passage_id(published.revision, 0)]

    assert await catalogue.passages.locate(SCOPE, [passage_id("r", 0)]) == {}
    for scope in (
        Scope(tenant="t2", sources=("s1",)),
        Scope(tenant="t1", sources=("s2",)),
        Scope(tenant="t1", sources=("s1",), documents=("other",)),
    ):
        assert await catalogue.passages.locate(scope, shown) == {}
    assert len(await catalogue.passages.locate(SCOPE, shown)) == 1


async def test_the_same_content_is_admitted_once(catalogue: Catalogue) -> None:
    document = await catalogue.publish(content="one")

    again = await catalogue.documents.admit(upload("a.md", "one"), "unused")

    assert again.unchanged
    assert again.document.id == document.id
    assert await catalogue.documents.interrupted() == []


async def test_a_new_revision_replaces_the_old_and_its_words(catalogue: Catalogue) -> None:
    old = await catalogue.publish(content="mileage")
    new = await catalogue.publish(content="parking", parts=1)

    counts = await catalogue.passages.term_counts(SCOPE, ["mileag", "park"])
    assert (counts.passages, dict(counts.holding)) == (1, {"park": 1})
    assert await catalogue.passages.locate(SCOPE, [passage_id(old.revision, 0)]) == {}
    (purge,) = await catalogue.documents.purges()
    assert (purge.document_id, purge.revision) == (new.id, old.revision)


async def test_publishing_a_revision_again_takes_its_purge_back(catalogue: Catalogue) -> None:
    first = await catalogue.publish(content="one")
    second = await catalogue.publish(content="two")

    await catalogue.publish(content="one")

    assert [purge.revision for purge in await catalogue.documents.purges()] == [second.revision]
    assert first.revision != second.revision


async def test_writing_passages_again_changes_nothing(catalogue: Catalogue) -> None:
    document, staged = await catalogue.admit()
    document = replace(document, revision="r", passages=1)
    for _ in range(2):
        assert await catalogue.documents.write([passage(document, 0, "text")])
    await catalogue.documents.publish(document, staged, count_terms(["text"]), embed=False)

    assert len(await catalogue.passages.of_document(document, start=0, limit=10)) == 1


async def test_a_later_upload_of_a_path_wins(catalogue: Catalogue) -> None:
    document, first = await catalogue.admit(content="one")
    await catalogue.admit(content="two")
    late = replace(document, revision=revision_of(document.id, "one"))

    assert not await catalogue.documents.advance(document.id, first, DocumentState.PARSING)
    assert not await catalogue.documents.publish(late, first, {}, embed=False)
    await catalogue.documents.write([passage(late, 0, "text")])
    await catalogue.documents.abandon(late)
    assert [purge.revision for purge in await catalogue.documents.purges()] == [late.revision]
    assert [staged for _, staged in await catalogue.documents.interrupted()] == ["staged-two"]


async def test_abandoning_spares_a_revision_that_is_queued_again(catalogue: Catalogue) -> None:
    document, _ = await catalogue.admit(content="one")
    await catalogue.documents.abandon(replace(document, revision=revision_of(document.id, "one")))

    assert await catalogue.documents.purges() == []


async def test_a_failed_upload_leaves_the_searched_revision(catalogue: Catalogue) -> None:
    document = await catalogue.publish(content="one")
    _, staged = await catalogue.admit("a.md", "two")
    await catalogue.documents.write([passage(replace(document, revision="half"), 0, "half")])

    await catalogue.documents.fail(document.id, staged, "EMPTY", "the file is empty")

    stored = await catalogue.documents.get(await catalogue.sources.find(ANN, "s1"), document.id)
    assert (stored.state, stored.reason, stored.revision) == (DocumentState.FAILED, "EMPTY", document.revision)
    assert [purge.revision for purge in await catalogue.documents.purges()] == ["half"]
    assert len(await catalogue.passages.locate(SCOPE, [passage_id(document.revision, 0)])) == 1


async def test_a_document_of_a_deleted_source_takes_no_passages(catalogue: Catalogue) -> None:
    document, staged = await catalogue.admit()
    await catalogue.sources.remove(await catalogue.sources.find(ANN, "s1"))

    assert not await catalogue.documents.write([passage(replace(document, revision="r"), 0, "text")])
    assert not await catalogue.documents.publish(replace(document, revision="r"), staged, {}, embed=False)
    with pytest.raises(SourceNotFound):
        await catalogue.documents.admit(upload("a.md", "one"), "d2")


async def test_removing_a_document_takes_its_words_away(catalogue: Catalogue) -> None:
    document = await catalogue.publish("a.md", "mileage")
    await catalogue.publish("b.md", "mileage parking", parts=1)

    await catalogue.documents.remove(document)

    counts = await catalogue.passages.term_counts(SCOPE, ["mileag", "park"])
    assert (counts.passages, dict(counts.holding)) == (1, {"mileag": 1, "park": 1})
    with pytest.raises(DocumentNotFound):
        await catalogue.documents.remove(document)


async def test_words_of_a_large_document_are_taken_away_part_by_part(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary, "_PASSAGES", 2)
    document = await catalogue.publish(content="mileage", parts=5)

    await catalogue.documents.remove(document)

    counts = await catalogue.passages.term_counts(SCOPE, ["mileag"])
    assert (counts.passages, counts.holding) == (0, {})


async def test_conditions_choose_documents_of_the_scope(catalogue: Catalogue) -> None:
    document = await catalogue.publish("policies/a.md")
    await catalogue.publish("b.md")
    condition = parse("path ~ policies/* and meta.department = hr and source = handbook")
    assert condition is not None

    assert await catalogue.documents.matching(SCOPE, condition) == (document.id,)
    assert await catalogue.documents.matching(Scope(tenant="t2", sources=("s1",)), condition) == ()


async def test_what_stands_around_a_passage(catalogue: Catalogue) -> None:
    document = await catalogue.publish(parts=3)
    passages = await catalogue.passages.of_document(document, start=0, limit=10)

    assert await catalogue.passages.around(passages[1]) == ("one", "one")
    assert await catalogue.passages.around(passages[0]) == ("", "one")


# --- Vectors ---------------------------------------------------------------------------------------------------------
async def test_a_job_is_held_by_one_worker_until_its_lease_ends(catalogue: Catalogue) -> None:
    document = await catalogue.publish(embed=True)

    job = await catalogue.queue.claim("space")

    assert job is not None
    assert (job.document.id, job.done, job.attempts) == (document.id, 0, 1)
    assert await catalogue.queue.claim("space") is None
    assert await catalogue.queue.advance(job, 1)
    catalogue.clock.advance(LEASE.total_seconds() + 1)
    again = await catalogue.queue.claim("space")
    assert again is not None
    assert again.done == 1


async def test_progress_is_counted_and_the_end_makes_the_document_done(catalogue: Catalogue) -> None:
    document = await catalogue.publish(embed=True, parts=3)
    job = await catalogue.queue.claim("space")
    assert job is not None

    assert await catalogue.queue.lagging(["s1"]) == ["s1"]
    await catalogue.queue.advance(job, 2)
    assert (await catalogue.sources.counts(["s1"]))["s1"].vectors_pending == 1
    await catalogue.queue.finish(job)

    assert (await catalogue.sources.counts(["s1"]))["s1"].vectors_pending == 0
    assert await catalogue.queue.lagging(["s1"]) == []
    stored = await catalogue.documents.get(await catalogue.sources.find(ANN, "s1"), document.id)
    assert stored.state is DocumentState.DONE


async def test_a_job_of_a_replaced_revision_reports_into_the_void(catalogue: Catalogue) -> None:
    await catalogue.publish(content="one", embed=True)
    job = await catalogue.queue.claim("space")
    assert job is not None
    await catalogue.publish(content="two", embed=True)

    assert not await catalogue.queue.advance(job, 1)
    await catalogue.queue.finish(job)
    fresh = await catalogue.queue.claim("space")
    assert fresh is not None
    assert fresh.done == 0


async def test_a_start_frees_what_the_process_before_held(catalogue: Catalogue, database_url: str) -> None:
    await catalogue.publish(embed=True)
    assert await catalogue.queue.claim("space") is not None

    await catalogue.queue.recover()

    # On PostgreSQL another replica may be at it: its lease holds.
    assert (await catalogue.queue.claim("space") is not None) == database_url.startswith("sqlite")


async def test_a_postponed_job_waits(catalogue: Catalogue) -> None:
    await catalogue.publish(embed=True)
    job = await catalogue.queue.claim("space")
    assert job is not None
    await catalogue.queue.postpone(job, 30)

    catalogue.clock.advance(29)
    assert await catalogue.queue.claim("space") is None
    catalogue.clock.advance(2)
    again = await catalogue.queue.claim("space")
    assert again is not None
    assert again.attempts == 2


async def test_another_embedder_starts_from_the_beginning(catalogue: Catalogue) -> None:
    await catalogue.publish(embed=True)
    job = await catalogue.queue.claim("old")
    assert job is not None
    await catalogue.queue.finish(job)

    assert await catalogue.queue.enqueue_stale("old") == 0
    assert await catalogue.queue.enqueue_stale("new") == 1
    fresh = await catalogue.queue.claim("new")
    assert fresh is not None
    assert fresh.done == 0
