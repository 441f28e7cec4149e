"""A summary per document, made by a model in the background and found like a passage, as evidence of its own kind.

It is kept as a passage of its revision with the ordinal SUMMARY, so that whatever drops a revision drops it too.
"""

from __future__ import annotations

import asyncio
import logging

from services.chassis.errors import ServiceError
from services.retrieval.domain.library import SUMMARY, Document, Passage, Span, passage_id
from services.retrieval.domain.search import ChunkVector, IndexedChunk
from services.retrieval.embedding import embedded_text
from services.retrieval.ports import ChunkIndex, Documents, Embedder, EmbedPurpose, Passages
from services.retrieval.purge import Purger
from services.retrieval.summary_ports import Summarizer, SummaryJob, SummaryQueue
from services.retrieval.tokens import index_text

log = logging.getLogger(__name__)

IDLE_SECONDS = 10.0
LONGEST_PAUSE = 600.0
# What a model reads of a document: its beginning, and as much again from places spread over the rest.
READ_PASSAGES = 6
# A summary longer than this is cut: it is found by one chunk.
MAX_CHARACTERS = 2_000


class SummaryWorker:
    """Works off the documents that want a summary, one at a time."""

    def __init__(
        self,
        queue: SummaryQueue,
        documents: Documents,
        passages: Passages,
        index: ChunkIndex,
        embedder: Embedder | None,
        summarizer: Summarizer,
        purger: Purger,
    ) -> None:
        self._queue = queue
        self._documents = documents
        self._passages = passages
        self._index = index
        self._embedder = embedder
        self._summarizer = summarizer
        self._purger = purger
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look into the queue now."""
        self._wake.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._wake.clear()
            if await self._next():
                continue
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _next(self) -> bool:
        space = self._embedder.space if self._embedder else ""
        job = await self._queue.claim(space)
        if job is None:
            return False
        try:
            await self._document(job, space)
        except ServiceError as failure:
            pause = min(2.0**job.attempts, LONGEST_PAUSE)
            told = {"event": "summary.postponed", "document": job.document.id}
            log.warning("a summary waits %.0f s: %s", pause, failure, extra=told)
            await self._queue.postpone(job, pause)
        except asyncio.CancelledError:
            # An orderly stop: the next start, or another replica, need not wait for the lease.
            await asyncio.shield(self._queue.postpone(job, 0))
            raise
        return True

    async def _document(self, job: SummaryJob, space: str) -> None:
        document = job.document
        kept = await self._passages.summary(document)
        summary = _passage(document, kept or await self._summarize(document))
        if await self._documents.write([summary]):
            await self._index.add([_chunk(document, summary)])
            if self._embedder is not None:
                await self._index.add_vectors(space, [await self._vector(self._embedder, document, summary)])
        if not await self._queue.finish(job, space):
            # The revision went while the model wrote: nothing of it may stay.
            await self._documents.abandon(document)
            await self._purger.run()

    async def _summarize(self, document: Document) -> str:
        ordinals = list(range(min(READ_PASSAGES // 2, document.passages)))
        left = document.passages - len(ordinals)
        spread = min(READ_PASSAGES - len(ordinals), left)
        ordinals.extend(len(ordinals) + at * left // spread for at in range(spread))
        texts: list[str] = []
        for ordinal in ordinals:
            texts.extend(one.text for one in await self._passages.of_document(document, start=ordinal, limit=1))
        return (await self._summarizer.summarize(document.title, "\n\n".join(texts)))[:MAX_CHARACTERS]

    @staticmethod
    async def _vector(embedder: Embedder, document: Document, summary: Passage) -> ChunkVector:
        (values,) = await embedder.embed([embedded_text(document, summary, 0)], EmbedPurpose.PASSAGE)
        return ChunkVector(
            id=summary.chunk_id(0),
            tenant=summary.tenant,
            source_id=summary.source_id,
            document_id=summary.document_id,
            revision=summary.revision,
            passage_id=summary.id,
            index=0,
            values=values,
        )


def _passage(document: Document, text: str) -> Passage:
    return Passage(
        id=passage_id(document.revision, SUMMARY),
        tenant=document.tenant,
        source_id=document.source_id,
        document_id=document.id,
        revision=document.revision,
        ordinal=SUMMARY,
        text=text,
        start=0,
        spans=(Span(start=0, end=len(text)),),
    )


def _chunk(document: Document, summary: Passage) -> IndexedChunk:
    return IndexedChunk(
        id=summary.chunk_id(0),
        tenant=summary.tenant,
        source_id=summary.source_id,
        document_id=summary.document_id,
        revision=summary.revision,
        passage_id=summary.id,
        index=0,
        tokens=index_text(summary.text, document.title),
    )
