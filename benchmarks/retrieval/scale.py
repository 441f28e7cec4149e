"""How fast the embedded index is: writes, and searches by words, vectors and both, idle and while it is written to.

    python -m benchmarks.retrieval.scale 10000
    python -m benchmarks.retrieval.scale 100000

Text is drawn from a Zipf distribution over 50,000 terms, vectors from 500 clusters in 384 dimensions. Writes beside
searches come at the rate that ingest is to reach, and without a pause, which is more than any parser makes.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from services.retrieval.adapters.lance_index import LanceIndex
from services.retrieval.domain.search import ChunkVector, IndexedChunk, Scope

SPACE = "bench/384"
SCOPE = Scope(tenant="t", sources=("s",))
BATCH = 1000
QUERIES = 200
# Chunks of one write beside searches, and how many a second.
WRITTEN, RATE = 100, 1000


class Corpus:
    """Synthetic chunks and questions, the same in every run."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)
        self._centres = self._random.standard_normal((500, 384)).astype("float32")

    def batch(self, first: int, count: int) -> tuple[list[IndexedChunk], list[ChunkVector]]:
        """Return chunks number `first` and on."""
        words, vectors = [], []
        for number, vector in enumerate(self._vectors(count), start=first):
            keys: dict[str, Any] = {
                "id": f"p{number}-0",
                "tenant": "t",
                "source_id": "s",
                "document_id": f"d{number // 50}",
                "revision": "r",
                "passage_id": f"p{number}",
                "index": 0,
            }
            words.append(IndexedChunk(**keys, tokens=" ".join(self._terms(80))))
            vectors.append(ChunkVector(**keys, values=vector))
        return words, vectors

    def question(self) -> tuple[list[str], list[float]]:
        """Return the terms and the vector of a question."""
        return self._terms(6), self._vectors(1)[0]

    def _terms(self, count: int) -> list[str]:
        return [f"w{min(int(n), 50_000)}" for n in self._random.zipf(1.2, count)]

    def _vectors(self, count: int) -> list[list[float]]:
        noise = self._random.standard_normal((count, 384)).astype("float32")
        found: list[list[float]] = (self._centres[self._random.integers(0, 500, count)] + noise).tolist()
        return found


async def timed(index: LanceIndex, corpus: Corpus) -> str:
    """Return medians and 99th percentiles in milliseconds, and the processor's time for a question of all three."""
    taken: dict[str, list[float]] = {"words": [], "vectors": [], "both": []}
    cpu = time.process_time()
    for _ in range(QUERIES):
        terms, vector = corpus.question()
        start = time.perf_counter()
        await index.lexical(terms, SCOPE, 50)
        between = time.perf_counter()
        await index.nearest(SPACE, vector, SCOPE, 50)
        after = time.perf_counter()
        await asyncio.gather(index.lexical(terms, SCOPE, 50), index.nearest(SPACE, vector, SCOPE, 50))
        end = time.perf_counter()
        for name, seconds in (("words", between - start), ("vectors", after - between), ("both", end - after)):
            taken[name].append(seconds * 1000)
    each = (time.process_time() - cpu) / QUERIES * 1000
    told = (f"{name} p50 {np.percentile(ms, 50):.1f} p99 {np.percentile(ms, 99):.1f}" for name, ms in taken.items())
    return "  ".join((*told, f"processor {each:.1f}"))


async def main(count: int) -> None:
    corpus = Corpus()
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder:
        index = await LanceIndex.open(Path(folder))
        spent = {"words": 0.0, "vectors": 0.0}
        for first in range(0, count, BATCH):
            words, vectors = corpus.batch(first, BATCH)
            start = time.perf_counter()
            await index.add(words)
            between = time.perf_counter()
            await index.add_vectors(SPACE, vectors)
            spent["words"] += between - start
            spent["vectors"] += time.perf_counter() - between
        start = time.perf_counter()
        await index.maintain()
        print(f"{count} chunks: {count / spent['words']:.0f} word rows/s, {count / spent['vectors']:.0f} vector rows/s")
        print(f"folding into the indexes {time.perf_counter() - start:.1f} s")
        print(f"idle           {await timed(index, corpus)}")
        writer = Writer(index, corpus, count)
        for name, pause in ((f"{RATE} a second", WRITTEN / RATE), ("without pause", 0.0)):
            before, start = writer.written, time.perf_counter()
            writing = asyncio.create_task(writer.run(pause))
            print(f"{name:14} {await timed(index, corpus)}")
            writing.cancel()
            await asyncio.wait([writing])
            print(f"    {(writer.written - before) / (time.perf_counter() - start):.0f} chunks/s with vectors beside")
        size = await asyncio.to_thread(_size, Path(folder))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"disk {size / 2**20:.0f} MiB, peak memory {peak} MiB")
        await index.close()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class Writer:
    """Writes chunks and vectors that were made beforehand: drawing them would take the searches' own processor."""

    def __init__(self, index: LanceIndex, corpus: Corpus, first: int) -> None:
        self._index = index
        self._made = [corpus.batch(0, WRITTEN) for _ in range(20)]
        self._first = first
        self.written = 0

    async def run(self, pause: float) -> None:
        """Write a batch every `pause` seconds until cancelled."""
        due = time.perf_counter()
        while True:
            words, vectors = self._made[self.written // WRITTEN % len(self._made)]
            await self._index.add([replace(one, **self._keys(at)) for at, one in enumerate(words)])
            await self._index.add_vectors(SPACE, [replace(one, **self._keys(at)) for at, one in enumerate(vectors)])
            self.written += WRITTEN
            due = max(due + pause, time.perf_counter() - 1)
            await asyncio.sleep(max(due - time.perf_counter(), 0))

    def _keys(self, at: int) -> dict[str, Any]:
        number = self._first + self.written + at
        return {"id": f"p{number}-0", "document_id": f"d{number // 50}", "passage_id": f"p{number}"}


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
