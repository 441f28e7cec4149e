"""The worker that makes vectors: short documents share a write, and one that fails holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from services.retrieval.domain.errors import IndexUnavailable
from services.retrieval.domain.library import Document, Passage, Span
from services.retrieval.embedding import EmbedWorker
from services.retrieval.ports import EmbedJob, EmbedPurpose


def document(name: str, passages: int) -> Document:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Document(
        id=name, tenant="t", source_id="s", path=f"{name}.md", passages=passages, ingested_at=at, revision=name
    )


@dataclass(slots=True)
class Desk:
    """The queue, the passages and the index of a worker, as lists."""

    waiting: list[EmbedJob]
    finished: list[str] = field(default_factory=list)
    postponed: list[str] = field(default_factory=list)
    writes: list[list[str]] = field(default_factory=list)
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    async def enqueue_stale(self, space: str) -> int:
        return 0

    async def claim(self, space: str) -> EmbedJob | None:
        if not self.waiting:
            self.idle.set()
            return None
        return self.waiting.pop(0)

    async def advance(self, job: EmbedJob, done: int) -> bool:
        return True

    async def finish(self, job: EmbedJob) -> None:
        self.finished.append(job.document.id)

    async def postpone(self, job: EmbedJob, seconds: float) -> None:
        self.postponed.append(job.document.id)

    async def of_document(self, one: Document, *, start: int, limit: int) -> list[Passage]:
        return [
            Passage(
                id=f"{one.id}{ordinal}",
                tenant="t",
                source_id="s",
                document_id=one.id,
                revision=one.id,
                ordinal=ordinal,
                text=one.id,
                start=0,
                spans=(Span(start=0, end=len(one.id)),),
            )
            for ordinal in range(start, min(start + limit, one.passages))
        ]

    async def add_vectors(self, space: str, vectors: Sequence[Any]) -> None:
        self.writes.append([vector.id for vector in vectors])


async def worked(desk: Desk) -> Desk:
    async def embed(texts: Sequence[str], purpose: EmbedPurpose) -> list[list[float]]:
        if any("bad" in text for text in texts):
            raise IndexUnavailable("no")
        return [[1.0] for _ in texts]

    parts: Any = desk
    embedder: Any = SimpleNamespace(space="x", embed=embed)
    worker = asyncio.create_task(EmbedWorker(parts, parts, parts, embedder).run())
    await desk.idle.wait()
    while desk.waiting:
        await asyncio.sleep(0)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    return desk


def jobs(*named: tuple[str, int]) -> list[EmbedJob]:
    return [EmbedJob(document=document(name, passages), done=0, attempts=1) for name, passages in named]


async def test_short_documents_share_one_write() -> None:
    desk = await worked(Desk(jobs(("a", 1), ("b", 2), ("c", 1))))

    assert desk.writes == [["a0-0", "b0-0", "b1-0", "c0-0"]]
    assert (desk.finished, desk.postponed) == (["a", "b", "c"], [])


async def test_a_document_that_fails_is_put_off_alone() -> None:
    desk = await worked(Desk(jobs(("a", 1), ("bad", 1), ("c", 1))))

    assert (desk.finished, desk.postponed) == (["a", "c"], ["bad"])


async def test_a_long_document_goes_in_steps() -> None:
    desk = await worked(Desk(jobs(("a", 1), ("long", 20))))

    assert [len(write) for write in desk.writes] == [1, 8, 8, 4]
    assert sorted(desk.finished) == ["a", "long"]
