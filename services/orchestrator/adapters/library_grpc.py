"""Documents and the web by the retrieval service over gRPC."""

from __future__ import annotations

import grpc

from proctor.retrieval.v1 import retrieval_service_pb2 as retrieval_pb
from proctor.retrieval.v1 import source_service_pb2 as source_pb
from proctor.retrieval.v1.retrieval_service_pb2_grpc import RetrievalServiceStub
from proctor.retrieval.v1.source_service_pb2_grpc import SourceServiceStub
from services.chassis.clock import Clock
from services.chassis.errors import from_rpc_error
from services.chassis.identity import IdentitySigner, Principal
from services.orchestrator.adapters.retrieval_grpc import to_finding
from services.orchestrator.domain.messages import EvidenceKind
from services.orchestrator.evidence import Finding
from services.orchestrator.tools.library import DocumentText, LibraryRefused, Listed, Listing, WebAccess, WebPage

PAGE = 100
# How old, in seconds, the answer may be by which tools are offered, how old none, and how long one may take.
ACCESS_FRESH = 60.0
ACCESS_AGAIN = 3.0
ACCESS_SECONDS = 1.0


class GrpcLibrary:
    """Implements the port Library."""

    def __init__(self, channel: grpc.aio.Channel, signer: IdentitySigner, timeout: float) -> None:
        self._sources = SourceServiceStub(channel)
        self._signer = signer
        self._timeout = timeout

    async def list(self, principal: Principal, sources: tuple[str, ...], *, glob: str, token: str) -> Listing:
        request = source_pb.ListDocumentsRequest(sources=sources, path_glob=glob, page_token=token, page_size=PAGE)
        try:
            response = await self._sources.ListDocuments(
                request, metadata=self._signer.metadata(principal), timeout=self._timeout
            )
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from error
        return Listing(documents=[_listed(one) for one in response.documents], next_token=response.next_page_token)

    async def read(
        self,
        principal: Principal,
        sources: tuple[str, ...],
        document: str,
        *,
        offset: int = 0,
        page: int = 0,
        limit: int = 0,
    ) -> DocumentText:
        request = source_pb.ReadDocumentRequest(
            sources=sources, document=document, offset=offset, page=page, max_characters=limit
        )
        try:
            response = await self._sources.ReadDocument(
                request, metadata=self._signer.metadata(principal), timeout=self._timeout
            )
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from error
        return _text(response)


class GrpcWeb:
    """Implements the port Web. `service` asks what is configured, which is the same for everybody."""

    def __init__(
        self, channel: grpc.aio.Channel, signer: IdentitySigner, service: Principal, clock: Clock, timeout: float
    ) -> None:
        self._retrieval = RetrievalServiceStub(channel)
        self._signer = signer
        self._service = service
        self._clock = clock
        self._timeout = timeout
        self._access: tuple[float, WebAccess] | None = None

    async def access(self) -> WebAccess:
        now = self._clock.monotonic()
        if self._access is not None and now < self._access[0]:
            return self._access[1]
        try:
            response = await self._retrieval.GetWebAccess(
                retrieval_pb.GetWebAccessRequest(),
                metadata=self._signer.metadata(self._service),
                timeout=ACCESS_SECONDS,
            )
        except grpc.aio.AioRpcError as error:
            access = WebAccess(problem=f"the retrieval service does not answer: {error.details()}")
            self._access = (now + ACCESS_AGAIN, access)
            return access
        access = WebAccess(searches=bool(response.search_provider), fetches=response.fetches_pages)
        self._access = (now + ACCESS_FRESH, access)
        return access

    async def search(self, principal: Principal, query: str, top_k: int) -> tuple[Finding, ...]:
        request = retrieval_pb.SearchWebRequest(query=query, top_k=top_k)
        try:
            response = await self._retrieval.SearchWeb(
                request, metadata=self._signer.metadata(principal), timeout=self._timeout
            )
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from error
        return tuple(to_finding(hit) for hit in response.hits)

    async def fetch(self, principal: Principal, url: str, limit: int) -> WebPage:
        request = retrieval_pb.FetchPageRequest(url=url, max_characters=limit)
        try:
            response = await self._retrieval.FetchPage(
                request, metadata=self._signer.metadata(principal), timeout=self._timeout
            )
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from error
        return WebPage(finding=to_finding(response.page), url=response.final_url, truncated=response.truncated)


def _refused(error: grpc.aio.AioRpcError) -> LibraryRefused:
    return LibraryRefused(from_rpc_error(error).message)


def _listed(document: source_pb.Document) -> Listed:
    return Listed(
        document_id=document.document_id,
        source=document.source_name or document.source_id,
        path=document.path,
        title=document.title,
        media_type=document.media_type,
        size=document.size,
        passages=document.passages,
        state=source_pb.DocumentState.Name(document.state).removeprefix("DOCUMENT_STATE_").lower(),
        reason=document.reason,
    )


def _text(response: source_pb.ReadDocumentResponse) -> DocumentText:
    document = response.document
    passages = tuple(
        Finding(
            kind=EvidenceKind.PASSAGE,
            title=document.title or document.path,
            text=part.text,
            where=part.where,
            url=document.url,
            source_id=document.source_id,
            document_id=document.document_id,
            passage_id=part.passage_id,
        )
        for part in response.parts
    )
    return DocumentText(
        document_id=document.document_id,
        source_id=document.source_id,
        source=document.source_name or document.source_id,
        path=document.path,
        title=document.title or document.path,
        url=document.url,
        passages=passages,
        start=response.parts[0].start if response.parts else 0,
        end=response.parts[-1].end if response.parts else 0,
        next_offset=response.next_offset,
        characters=response.characters,
        summary=response.summary,
    )
