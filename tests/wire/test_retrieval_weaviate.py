"""The whole service over a real Weaviate: ingest, vectors, search, deletion."""

from __future__ import annotations

import asyncio
from pathlib import Path

from proctor.retrieval.v1 import source_service_pb2 as source_pb
from services.retrieval.settings import IndexChoice, Settings
from tests.support.retrieval_service import running
from tests.support.retrieval_weaviate import Weaviate, weaviate

__all__ = ["weaviate"]


async def test_weaviate_serves_what_lance_does(tmp_path: Path, weaviate: Weaviate) -> None:
    settings = Settings(index=IndexChoice.WEAVIATE, weaviate_http=weaviate.http, weaviate_grpc=weaviate.grpc)
    async with running(tmp_path, settings) as retrieval:
        source = await retrieval.create("handbook")
        await retrieval.ingest(
            "handbook", {"a.md": "# Cars\n\nThe mileage rate is 38 cents.", "b.md": "# 请假\n\n婚假为十天。"}
        )
        while (await retrieval.sources())["handbook"].vectors_pending:
            await asyncio.sleep(0.05)

        (english, *_) = (await retrieval.search("What is the mileage rate?")).hits
        (chinese, *_) = (await retrieval.search("婚假有几天?")).hits
        assert (english.title, english.provenance.lexical_rank, english.provenance.vector_rank) == ("Cars", 1, 1)
        assert chinese.title == "请假"
        assert (await retrieval.search("How are tulips planted?")).hits == []
        request = source_pb.DeleteSourceRequest(source_id=source.source_id)
        await retrieval.source_stub.DeleteSource(request, metadata=retrieval.metadata)
        await retrieval.create("handbook")
        assert (await retrieval.search("mileage rate")).hits == []
