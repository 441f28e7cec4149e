"""Ingest: from staged files to searchable passages, in the background, surviving a crash at any point.

The order makes it so: the file is durable before it is admitted; passages are written before their chunks; one
transaction publishes the new revision and drops the old; then the index drops what the catalogue has forgotten.
Whatever stops in between is done again from the staged file and writes the same ids.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.library import (
    Document,
    DocumentState,
    Passage,
    Progress,
    Upload,
    passage_id,
    revision_of,
)
from services.retrieval.domain.search import IndexedChunk
from services.retrieval.portions import CutDocument, Parcel, Portion
from services.retrieval.ports import ChunkIndex, Cutter, Documents, Staging
from services.retrieval.purge import Purger

log = logging.getLogger(__name__)

# Passages written in one go: about 1,000 chunks, which bounds memory for a file of any size.
BATCH = 128
# The catalogue's threads ask for their turn at every row while the loop stores what comes in, and wait as long as this
# each time: at Python's own 5 ms the slowest hundredth of searches by words took 3.5 times as long as idle, now 2.2.
SWITCH_SECONDS = 0.0005

Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class _Work:
    document: Document
    staged: str
    report: Report


class Ingest:
    """Admits uploads and works them off, `workers` at a time."""

    def __init__(
        self,
        documents: Documents,
        index: ChunkIndex,
        staging: Staging,
        cutter: Cutter,
        purger: Purger,
        *,
        workers: int,
        embed: bool,
        published: Callable[[], None],
    ) -> None:
        self._documents = documents
        self._index = index
        self._staging = staging
        self._cutter = cutter
        self._purger = purger
        self._workers = workers
        self._embed = embed
        self._published = published
        self._queue: asyncio.Queue[_Work] = asyncio.Queue()

    async def submit(self, upload: Upload, document_id: str, report: Report) -> None:
        """Queue a staged file; `report` hears every step until the document is settled."""
        admission = await self._documents.admit(upload, document_id)
        document = admission.document
        if admission.unchanged:
            await self._staging.discard(upload.staged)
            report(_progress(document, document.state, passages=document.passages, unchanged=True))
            return
        report(_progress(document, DocumentState.QUEUED))
        self._queue.put_nowait(_Work(document, upload.staged, report))

    async def recover(self) -> int:
        """Queue what a crash interrupted; return how many. Files that nobody waits for are dropped."""
        here = set(await self._staging.names())
        interrupted = [pair for pair in await self._documents.interrupted() if pair[1] in here]
        for document, staged in interrupted:
            self._queue.put_nowait(_Work(document, staged, _nobody))
        for name in here - {staged for _, staged in interrupted}:
            await self._staging.discard(name)
        return len(interrupted)

    async def run(self) -> None:
        """Work until cancelled."""
        sys.setswitchinterval(SWITCH_SECONDS)
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            work = await self._queue.get()
            try:
                await self._one(work)
            except Exception:
                # The staged file stays: the next start tries again.
                log.exception("ingest failed", extra={"event": "ingest.failed", "document": work.document.id})
                work.report(_progress(work.document, DocumentState.FAILED, reason="INTERNAL", message=_INTERNAL))

    async def _one(self, work: _Work) -> None:
        document = work.document
        try:
            if await self._step(work, DocumentState.PARSING):
                async with self._cutter.open(self._staging.path(work.staged), document.path) as found:
                    if await self._step(work, DocumentState.INDEXING):
                        await self._index_document(work, found)
        except UnreadableFile as refusal:
            await self._documents.fail(document.id, work.staged, refusal.reason, refusal.message)
            await self._purger.run()
            work.report(_progress(document, DocumentState.FAILED, reason=refusal.reason, message=refusal.message))
        await self._staging.discard(work.staged)

    async def _step(self, work: _Work, state: DocumentState) -> bool:
        if await self._documents.advance(work.document.id, work.staged, state):
            work.report(_progress(work.document, state))
            return True
        work.report(_superseded(work.document))
        return False

    async def _index_document(self, work: _Work, found: CutDocument) -> None:
        content_hash = work.staged.rpartition("-")[2]
        document = replace(
            work.document,
            title=found.head.title,
            media_type=found.head.media_type,
            content_hash=content_hash,
            revision=revision_of(work.document.id, content_hash),
            message=found.head.remark,
        )
        await self._purger.run()  # what an earlier try left must not be dropped after we write the same ids
        counts, written = await self._write(document, found.parcels)
        document = replace(document, passages=written)
        if await self._documents.publish(document, work.staged, counts, embed=self._embed):
            state = DocumentState.EMBEDDING if self._embed else DocumentState.DONE
            work.report(_progress(document, state, passages=written, message=document.message))
            self._published()
        else:
            await self._documents.abandon(document)
            work.report(_superseded(document))
        await self._purger.run()

    async def _write(self, document: Document, parcels: AsyncIterator[Parcel]) -> tuple[dict[str, int], int]:
        """Store the document; return how many passages hold each term, the empty term all, and how many there are."""
        counts: dict[str, int] = {}
        written = 0
        passages: list[Passage] = []
        chunks: list[IndexedChunk] = []
        async for parcel in parcels:
            counts.update(parcel.terms)
            for portion in parcel.portions:
                passage = _passage(document, written, portion)
                passages.append(passage)
                chunks.extend(_chunks(passage, portion))
                written += 1
            if len(passages) >= BATCH:
                await self._store(passages, chunks)
                passages, chunks = [], []
        await self._store(passages, chunks)
        return {**counts, "": written}, written

    async def _store(self, passages: Sequence[Passage], chunks: Sequence[IndexedChunk]) -> None:
        if passages and await self._documents.write(passages):
            await self._index.add(chunks)


def _passage(document: Document, ordinal: int, portion: Portion) -> Passage:
    return Passage(
        id=passage_id(document.revision, ordinal),
        tenant=document.tenant,
        source_id=document.source_id,
        document_id=document.id,
        revision=document.revision,
        ordinal=ordinal,
        text=portion.text,
        start=portion.start,
        spans=portion.spans,
    )


def _chunks(passage: Passage, portion: Portion) -> Iterator[IndexedChunk]:
    for index, tokens in enumerate(portion.tokens):
        yield IndexedChunk(
            id=passage.chunk_id(index),
            tenant=passage.tenant,
            source_id=passage.source_id,
            document_id=passage.document_id,
            revision=passage.revision,
            passage_id=passage.id,
            index=index,
            tokens=tokens,
        )


_INTERNAL = "the file could not be ingested for a reason of our own; it is tried again at the next start"


def _progress(
    document: Document,
    state: DocumentState,
    *,
    reason: str = "",
    message: str = "",
    passages: int = 0,
    unchanged: bool = False,
) -> Progress:
    return Progress(
        path=document.path,
        state=state,
        document_id=document.id,
        reason=reason,
        message=message,
        passages=passages,
        unchanged=unchanged,
    )


def _superseded(document: Document) -> Progress:
    told = "the document was deleted or uploaded again while this upload was under way"
    return _progress(document, DocumentState.FAILED, reason="SUPERSEDED", message=told)


def _nobody(progress: Progress) -> None:
    """Hear nothing: whoever uploaded the file is gone."""
