"""The retrieval service over gRPC."""

from __future__ import annotations

import grpc
from opentelemetry.trace import SpanKind, Tracer

from proctor.retrieval.v1 import retrieval_service_pb2 as pb
from proctor.retrieval.v1.retrieval_service_pb2_grpc import RetrievalServiceStub
from services.chassis import names
from services.chassis.identity import IdentitySigner, Principal
from services.orchestrator.domain.agent import Searching
from services.orchestrator.domain.messages import EvidenceKind
from services.orchestrator.evidence import Finding
from services.orchestrator.ports import SearchResult, SourceNotice

# Passages of one search, unless the agent or the request says how many.
HITS = 6


class GrpcRetrieval:
    """Implements the Retrieval port. A service that does not answer is a notice, never the end of a run."""

    def __init__(self, channel: grpc.aio.Channel, signer: IdentitySigner, tracer: Tracer, timeout: float) -> None:
        self._retrieval = RetrievalServiceStub(channel)
        self._signer = signer
        self._tracer = tracer
        self._timeout = timeout

    async def search(
        self,
        principal: Principal,
        query: str,
        *,
        sources: tuple[str, ...],
        history: tuple[str, ...],
        how: Searching,
        path: str = "",
    ) -> SearchResult:
        """Search `sources`, all readable ones when empty; with `path` only documents whose path fits this pattern."""
        request = pb.SearchRequest(
            query=query,
            sources=sources,
            history=history,
            retriever=how.retriever,
            top_k=how.top_k or HITS,
            max_characters=how.max_characters,
            filter=f"path ~ {_quoted(path)}" if path else "",
        )
        searched = ",".join(sources) or "*"
        attributes: dict[str, str | int] = {
            names.GEN_AI_OPERATION_NAME: names.SPAN_RETRIEVAL,
            names.GEN_AI_RETRIEVAL_TOP_K: request.top_k,
            names.GEN_AI_DATA_SOURCE_ID: searched,
        }
        with self._tracer.start_as_current_span(
            f"{names.SPAN_RETRIEVAL} {searched}", kind=SpanKind.CLIENT, attributes=attributes
        ) as span:
            try:
                response = await self._retrieval.Search(
                    request, metadata=self._signer.metadata(principal), timeout=self._timeout
                )
            except grpc.aio.AioRpcError as error:
                span.record_exception(error)
                text = f"The documents could not be searched: {error.details()}"
                return SearchResult(findings=(), notices=(SourceNotice(code="source_failed", text=text),))
            span.set_attribute(names.RETRIEVAL_HITS_COUNT, len(response.hits))
            span.set_attribute(names.RETRIEVAL_STAGES, list(response.stages))
            if response.hits:
                span.set_attribute(names.RETRIEVAL_BEST_SCORE, max(hit.score for hit in response.hits))
        return SearchResult(
            findings=tuple(to_finding(hit) for hit in response.hits),
            notices=tuple(SourceNotice(code=notice.code, text=notice.text) for notice in response.notices),
            stages=tuple(response.stages),
        )


def _quoted(text: str) -> str:
    """Return a text as the filter language quotes it: nothing in it can end the quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def to_finding(hit: pb.Hit) -> Finding:
    """Return a hit as evidence that has no number yet."""
    return Finding(
        kind=EvidenceKind(hit.kind or EvidenceKind.PASSAGE),
        title=hit.title,
        text=hit.text,
        where=hit.where,
        url=hit.url,
        score=hit.score if hit.HasField("score") else -1.0,
        source_id=hit.source_id,
        document_id=hit.document_id,
        passage_id=hit.passage_id,
    )
