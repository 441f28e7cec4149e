"""A whole retrieval service on a unix socket, and short ways to use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.retrieval.v1 import retrieval_service_pb2 as retrieval_pb
from proctor.retrieval.v1 import retrieval_service_pb2_grpc as retrieval_grpc
from proctor.retrieval.v1 import source_service_pb2 as source_pb
from proctor.retrieval.v1 import source_service_pb2_grpc as source_grpc
from services.chassis.identity import Principal
from services.chassis.platform import Platform
from services.chassis.serve import Service
from services.retrieval import bootstrap
from services.retrieval.settings import EmbedderChoice, Settings
from tests.support.platform import principal, test_platform
from tests.support.servers import serve

ANN = principal("ann")
LASTING = (source_pb.DOCUMENT_STATE_EMBEDDING, source_pb.DOCUMENT_STATE_DONE, source_pb.DOCUMENT_STATE_FAILED)
Files = Mapping[str, bytes | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """The service as one principal calls it."""

    search_stub: retrieval_grpc.RetrievalServiceAsyncStub
    source_stub: source_grpc.SourceServiceAsyncStub
    platform: Platform
    caller: Principal = ANN

    def as_(self, caller: Principal) -> Retrieval:
        """Return the service as another principal calls it."""
        return replace(self, caller=caller)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return self.platform.signer.metadata(self.caller)

    async def create(
        self, name: str, *, private: bool = False, topics: Sequence[source_pb.Topic] = ()
    ) -> source_pb.Source:
        request = source_pb.CreateSourceRequest(name=name, private=private, topics=topics)
        return (await self.source_stub.CreateSource(request, metadata=self.metadata)).source

    async def progress(self, source: str, files: Files) -> list[source_pb.IngestDocumentsResponse]:
        """Upload files and return every step of every one."""
        call = self.source_stub.IngestDocuments(parts(source, files), metadata=self.metadata)
        return [step async for step in call]

    async def ingest(self, source: str, files: Files) -> dict[str, source_pb.IngestDocumentsResponse]:
        """Upload files and return how each ended."""
        return {
            step.path: step for step in await self.progress(source, files) if step.state in LASTING or step.unchanged
        }

    async def search(self, query: str, **fields: object) -> retrieval_pb.SearchResponse:
        request = retrieval_pb.SearchRequest(query=query, **fields)  # type: ignore[arg-type]
        return await self.search_stub.Search(request, metadata=self.metadata)

    async def documents(self, source: str) -> dict[str, source_pb.Document]:
        request = source_pb.ListDocumentsRequest(source_id=source)
        listed = await self.source_stub.ListDocuments(request, metadata=self.metadata)
        return {document.path: document for document in listed.documents}

    async def sources(self) -> dict[str, source_pb.Source]:
        listed = await self.source_stub.ListSources(source_pb.ListSourcesRequest(), metadata=self.metadata)
        return {source.name: source for source in listed.sources}


async def parts(source: str, files: Files, size: int = 64 * 1024) -> AsyncIterator[source_pb.IngestDocumentsRequest]:
    """Yield the messages of an upload."""
    for path, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        yield source_pb.IngestDocumentsRequest(header=source_pb.DocumentHeader(source_id=source, path=path))
        for at in range(0, len(data), size):
            yield source_pb.IngestDocumentsRequest(chunk=data[at : at + size])
        yield source_pb.IngestDocumentsRequest(end=True)


@asynccontextmanager
async def running(
    data_dir: Path, settings: Settings | None = None, platform: Platform | None = None
) -> AsyncIterator[Retrieval]:
    """Run the service over `data_dir`, by words alone unless settings say otherwise."""
    platform = platform or test_platform()
    settings = replace(settings or Settings(embedder=EmbedderChoice.NONE), data_dir=data_dir)
    service: Service = await bootstrap.build(settings, platform)
    async with serve(service, platform=platform) as served:
        yield Retrieval(
            search_stub=retrieval_grpc.RetrievalServiceStub(served.channel),
            source_stub=source_grpc.SourceServiceStub(served.channel),
            platform=platform,
        )
