"""kill -9 of retrieval while it ingests loses and doubles nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from proctor.retrieval.v1 import retrieval_service_pb2_grpc as retrieval_grpc
from proctor.retrieval.v1 import source_service_pb2 as source_pb
from proctor.retrieval.v1 import source_service_pb2_grpc as source_grpc
from services.chassis.health import wait_for_health
from services.chassis.platform import Platform
from services.retrieval.adapters.lance_index import LanceIndex
from tests.support.platform import KEY, test_platform
from tests.support.retrieval_service import LASTING, Retrieval, parts

FILES = {f"f{n:02}.md": f"# Rule {n}\n\n" + f"The tariff of rule {n} is {n} euro. " * 400 for n in range(30)}


@dataclass(slots=True)
class Running:
    process: asyncio.subprocess.Process
    retrieval: Retrieval

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def process(folder: Path, platform: Platform, **settings: str) -> AsyncIterator[Running]:
    """Run `python -m services.retrieval` over `folder` until the block ends."""
    address = f"unix:{folder}/r.sock"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PROCTOR_SIGNING_KEY": KEY,
        "PROCTOR_RETRIEVAL_LISTEN": address,
        "PROCTOR_RETRIEVAL_DATA_DIR": str(folder / "data"),
        **{f"PROCTOR_RETRIEVAL_{name.upper()}": value for name, value in settings.items()},
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.retrieval", env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    channel = platform.channel(address)
    try:
        # First health: gRPC may still hold the connection to the process that was killed at this address, as ready.
        assert await asyncio.wait_for(wait_for_health(address), 60)
        await asyncio.wait_for(channel.channel_ready(), 60)
        yield Running(
            child,
            Retrieval(
                search_stub=retrieval_grpc.RetrievalServiceStub(channel),
                source_stub=source_grpc.SourceServiceStub(channel),
                platform=platform,
            ),
        )
    finally:
        await channel.close()
        if child.returncode is None:
            child.kill()
        await child.wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="proctor-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


async def settled(retrieval: Retrieval, source: str, count: int) -> dict[str, source_pb.Document]:
    while True:
        documents = await retrieval.documents(source)
        if len(documents) >= count and all(d.state in LASTING for d in documents.values()):
            return documents
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "kills_after", [45, pytest.param(3, marks=pytest.mark.prove), pytest.param(100, marks=pytest.mark.prove)]
)
async def test_a_kill_during_ingest_loses_and_doubles_nothing(folder: Path, kills_after: int) -> None:
    platform = test_platform()
    queued: set[str] = set()
    async with process(folder, platform, embedder="none") as first:
        source = (await first.retrieval.create("rules")).source_id
        call = first.retrieval.source_stub.IngestDocuments(parts("rules", FILES), metadata=first.retrieval.metadata)
        steps = 0
        with pytest.raises(grpc.aio.AioRpcError):
            async for step in call:
                queued.add(step.path)
                steps += 1
                if steps == kills_after:
                    await first.kill()

    async with process(folder, platform, embedder="none") as second:
        taken_up = await settled(second.retrieval, "rules", len(queued))
        assert queued <= set(taken_up)  # what was acknowledged is there without being sent again
        ended = await second.retrieval.ingest("rules", FILES)  # and sending all again is safe
        assert set(ended) == set(FILES)
        assert all(step.unchanged for path, step in ended.items() if path in queued)
        found = await second.retrieval.search("tariff of rule 17", top_k=3)
        assert found.hits[0].title == "Rule 17"
        passages = sum(document.passages for document in (await second.retrieval.documents("rules")).values())

    index = await LanceIndex.open(folder / "data" / "retrieval" / "lance")
    table = await index._words()
    rows = (await table.query().select(["chunk_id", "passage_id"]).to_arrow()).to_pylist()
    await index.close()
    assert len({row["chunk_id"] for row in rows}) == len(rows) == (await _chunks(folder, source))
    assert len({row["passage_id"] for row in rows}) == passages
    assert list((folder / "data" / "retrieval" / "staging").iterdir()) == []


async def test_a_kill_in_the_middle_of_a_large_file_loses_and_doubles_nothing(folder: Path) -> None:
    platform = test_platform()
    book = "".join(f"Rule {n}: the tariff of rule {n} is {n} euro. " * 20 + "\n\n" for n in range(3_000))
    async with process(folder, platform, embedder="none") as first:
        source = (await first.retrieval.create("rules")).source_id
        uploading = asyncio.create_task(first.retrieval.ingest("rules", {"book.txt": book}))
        while not _stored(folder):
            await asyncio.sleep(0.01)
        await first.kill()
        with pytest.raises(grpc.aio.AioRpcError):
            await uploading
    stored = _stored(folder)

    async with process(folder, platform, embedder="none") as second:
        document = (await settled(second.retrieval, "rules", 1))["book.txt"]
        found = await second.retrieval.search("tariff of rule 2999", top_k=1)

    assert 0 < stored < document.passages == _stored(folder)
    assert "Rule 2999" in found.hits[0].text
    index = await LanceIndex.open(folder / "data" / "retrieval" / "lance")
    rows = (await (await index._words()).query().select(["chunk_id", "passage_id"]).to_arrow()).to_pylist()
    await index.close()
    assert len({row["chunk_id"] for row in rows}) == len(rows) == (await _chunks(folder, source))
    assert len({row["passage_id"] for row in rows}) == document.passages
    assert list((folder / "data" / "retrieval" / "staging").iterdir()) == []


def _stored(folder: Path) -> int:
    """Return how many passages the catalogue holds, published or not."""
    with contextlib.closing(sqlite3.connect(folder / "data" / "retrieval.sqlite3")) as catalogue:
        return int(catalogue.execute("SELECT count(*) FROM passages").fetchone()[0])


async def _chunks(folder: Path, source: str) -> int:
    index = await LanceIndex.open(folder / "data" / "retrieval" / "lance")
    words, _ = await index.count("local", source)
    await index.close()
    return words


@pytest.mark.prove
@pytest.mark.timeout(400)
async def test_a_kill_while_vectors_are_made_loses_and_doubles_none(folder: Path) -> None:
    platform = test_platform()
    async with process(folder, platform) as first:
        source = (await first.retrieval.create("rules")).source_id
        await first.retrieval.ingest("rules", dict(list(FILES.items())[:6]))
        while (await first.retrieval.sources())["rules"].vectors_pending > 12:
            await asyncio.sleep(0.05)
        await first.kill()
    async with process(folder, platform) as second:
        index = folder / "data" / "retrieval" / "lance"
        while (await second.retrieval.sources())["rules"].vectors_pending:
            await asyncio.sleep(0.2)
    opened = await LanceIndex.open(index)
    words, vectors = await opened.count("local", source)
    await opened.close()
    assert words == vectors > 0
