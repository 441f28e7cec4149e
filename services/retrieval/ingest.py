"""Ingest: from staged files to searchable passages, in the background, surviving a crash at any point.

The order makes it so: the file is durable before it is admitted; passages are written before their chunks; one
transaction publishes the new revision and drops the old; then the index drops what the catalogue has forgotten.
Whatever stops in between is done again from the staged file and writes the same ids.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePosixPath

from services.retrieval.chunk import Cutting, Parent, cut
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
from services.retrieval.domain.text import Parsed
from services.retrieval.ports import ChunkIndex, Documents, Parser, Staging
from services.retrieval.purge import Purger
from services.retrieval.tokens import index_text, terms

log = logging.getLogger(__name__)

# Passages written in one go: about 1,000 chunks, which bounds memory for a file of any size.
BATCH = 128
# Documents are cut in threads, in Python. A search beside them waits for its turn dozens of times, each time as long as
# this: at Python's own 5 ms the slowest hundredth of searches took 4.1 times as long as without ingest, now 2.4 to 3.6.
SWITCH_SECONDS = 0.0005

Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class _Work:
    document: Document
    staged: str
    report: Report


@dataclass(frozen=True, slots=True)
class _Batch:
    passages: list[Passage]
    chunks: list[IndexedChunk]
    terms: Counter[str]


class Ingest:
    """Admits uploads and works them off, `workers` at a time."""

    def __init__(
        self,
        documents: Documents,
        index: ChunkIndex,
        staging: Staging,
        parser: Parser,
        purger: Purger,
        *,
        cutting: Cutting,
        workers: int,
        embed: bool,
        published: Callable[[], None],
    ) -> None:
        self._documents = documents
        self._index = index
        self._staging = staging
        self._parser = parser
        self._purger = purger
        self._cutting = cutting
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
                parsed = await self._parser.parse(self._staging.path(work.staged), document.path)
                if await self._step(work, DocumentState.INDEXING):
                    await self._index_document(work, parsed)
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

    async def _index_document(self, work: _Work, parsed: Parsed) -> None:
        content_hash = work.staged.rpartition("-")[2]
        document = replace(
            work.document,
            title=parsed.title.strip() or PurePosixPath(work.document.path).stem,
            media_type=parsed.media_type,
            content_hash=content_hash,
            revision=revision_of(work.document.id, content_hash),
            message=parsed.remark,
        )
        await self._purger.run()  # what an earlier try left must not be dropped after we write the same ids
        counts, written = await self._write(document, parsed)
        if not written:
            raise UnreadableFile("EMPTY", "the file holds no text")
        document = replace(document, passages=written)
        if await self._documents.publish(document, work.staged, counts, embed=self._embed):
            state = DocumentState.EMBEDDING if self._embed else DocumentState.DONE
            work.report(_progress(document, state, passages=written, message=document.message))
            self._published()
        else:
            await self._documents.abandon(document)
            work.report(_superseded(document))
        await self._purger.run()

    async def _write(self, document: Document, parsed: Parsed) -> tuple[Counter[str], int]:
        counts: Counter[str] = Counter()
        written = 0
        parents = cut(parsed.blocks, self._cutting)
        while True:
            batch = await asyncio.to_thread(_batch, document, parents, written)
            if not batch.passages:
                return counts, written
            if await self._documents.write(batch.passages):
                await self._index.add(batch.chunks)
            counts.update(batch.terms)
            written += len(batch.passages)


def _batch(document: Document, parents: Iterator[Parent], first: int) -> _Batch:
    """Return the next passages from ordinal `first`, with their chunks and how many of them hold each term."""
    passages: list[Passage] = []
    chunks: list[IndexedChunk] = []
    counts: Counter[str] = Counter()
    for ordinal, parent in enumerate(islice(parents, BATCH), start=first):
        passage = Passage(
            id=passage_id(document.revision, ordinal),
            tenant=document.tenant,
            source_id=document.source_id,
            document_id=document.id,
            revision=document.revision,
            ordinal=ordinal,
            text=parent.text,
            start=parent.start,
            spans=parent.spans,
        )
        passages.append(passage)
        chunks.extend(_chunks(document, passage))
        counts.update({"", *terms(passage.text)})  # the empty term counts them all
    return _Batch(passages, chunks, counts)


def _chunks(document: Document, passage: Passage) -> Iterator[IndexedChunk]:
    stem = PurePosixPath(document.path).stem
    for index, span in enumerate(passage.spans):
        yield IndexedChunk(
            id=passage.chunk_id(index),
            tenant=passage.tenant,
            source_id=passage.source_id,
            document_id=passage.document_id,
            revision=passage.revision,
            passage_id=passage.id,
            index=index,
            tokens=index_text(passage.text[span.start : span.end], f"{document.title}\n{stem}\n{span.heading}"),
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
