"""Protobuf messages of retrieval.v1 to domain values and back."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from proctor.agent.v1 import agent_pb2
from proctor.retrieval.v1 import retrieval_service_pb2 as retrieval_pb
from proctor.retrieval.v1 import source_service_pb2 as source_pb
from services.chassis.errors import InvalidRequest
from services.retrieval.domain.library import Document, DocumentState, Progress, Source, SourceCounts, Topic
from services.retrieval.domain.search import Found, Hit, HitKind, Question
from services.retrieval.ports import EmbedPurpose
from services.retrieval.reading import Reading
from services.retrieval.uploads import FileBytes, FileEnd, FileStart, Part

_KINDS = {
    HitKind.PASSAGE: agent_pb2.EVIDENCE_KIND_PASSAGE,
    HitKind.SUMMARY: agent_pb2.EVIDENCE_KIND_SUMMARY,
    HitKind.WEB: agent_pb2.EVIDENCE_KIND_WEB,
}
_STATES = {
    DocumentState.QUEUED: source_pb.DOCUMENT_STATE_QUEUED,
    DocumentState.PARSING: source_pb.DOCUMENT_STATE_PARSING,
    DocumentState.INDEXING: source_pb.DOCUMENT_STATE_INDEXING,
    DocumentState.EMBEDDING: source_pb.DOCUMENT_STATE_EMBEDDING,
    DocumentState.DONE: source_pb.DOCUMENT_STATE_DONE,
    DocumentState.FAILED: source_pb.DOCUMENT_STATE_FAILED,
}


def to_question(request: retrieval_pb.SearchRequest) -> Question:
    """Return the question of a request."""
    return Question(
        text=request.query,
        sources=tuple(request.sources),
        top_k=request.top_k,
        max_characters=request.max_characters,
        filter=request.filter,
        history=tuple(request.history),
        retriever=request.retriever,
    )


def from_found(found: Found) -> retrieval_pb.SearchResponse:
    """Return the response of a search."""
    took = Duration()
    took.FromNanoseconds(int(found.took * 1e9))
    return retrieval_pb.SearchResponse(
        hits=[from_hit(hit) for hit in found.hits],
        notices=[
            retrieval_pb.SearchNotice(code=notice.code, text=notice.text, source_id=notice.source_id)
            for notice in found.notices
        ],
        stages=list(found.stages),
        took=took,
    )


def from_hit(hit: Hit) -> retrieval_pb.Hit:
    """Return a hit as a message; a missing score stays unset."""
    return retrieval_pb.Hit(
        passage_id=hit.passage_id,
        source_id=hit.source_id,
        document_id=hit.document_id,
        title=hit.title,
        where=hit.where,
        text=hit.text,
        url=hit.url,
        score=hit.score,
        kind=_KINDS[hit.kind],
        provenance=retrieval_pb.Provenance(
            lexical_rank=hit.provenance.lexical_rank,
            vector_rank=hit.provenance.vector_rank,
            fused_score=hit.provenance.fused,
            stage=hit.provenance.stage,
            start=hit.provenance.start,
            end=hit.provenance.end,
        ),
    )


def to_purpose(purpose: retrieval_pb.EmbedPurpose.ValueType) -> EmbedPurpose:
    """Return what texts are embedded as; unspecified is passages."""
    return EmbedPurpose.QUERY if purpose == retrieval_pb.EMBED_PURPOSE_QUERY else EmbedPurpose.PASSAGE


def to_topics(topics: Sequence[source_pb.Topic]) -> tuple[Topic, ...]:
    """Return a source's vocabulary."""
    return tuple(Topic(name=topic.name, synonyms=tuple(topic.synonyms)) for topic in topics)


def from_source(source: Source, counts: SourceCounts) -> source_pb.Source:
    """Return a source as a message."""
    created_at = Timestamp()
    created_at.FromDatetime(source.created_at)
    return source_pb.Source(
        source_id=source.id,
        name=source.name,
        description=source.description,
        documents=counts.documents,
        passages=counts.passages,
        vectors_pending=counts.vectors_pending,
        summaries_pending=counts.summaries_pending,
        created_at=created_at,
        owner=source.owner,
        shared=source.shared,
        topics=[source_pb.Topic(name=topic.name, synonyms=topic.synonyms) for topic in source.topics],
    )


def from_reading(reading: Reading) -> source_pb.ReadDocumentResponse:
    """Return what was read of a document as a message."""
    return source_pb.ReadDocumentResponse(
        document=from_document(reading.document, reading.source_name),
        parts=[
            source_pb.DocumentPart(
                passage_id=part.passage_id, where=part.where, text=part.text, start=part.start, end=part.end
            )
            for part in reading.parts
        ],
        next_offset=reading.next_offset,
        characters=reading.characters,
        summary=reading.summary,
    )


def from_document(document: Document, source_name: str) -> source_pb.Document:
    """Return a document as a message."""
    ingested_at = Timestamp()
    ingested_at.FromDatetime(document.ingested_at)
    return source_pb.Document(
        document_id=document.id,
        source_id=document.source_id,
        path=document.path,
        title=document.title,
        media_type=document.media_type,
        size=document.size,
        state=_STATES[document.state],
        reason=document.reason,
        passages=document.passages,
        ingested_at=ingested_at,
        content_hash=document.content_hash,
        url=document.url,
        metadata=document.metadata,
        source_name=source_name,
        message=document.message,
    )


def from_progress(progress: Progress) -> source_pb.IngestDocumentsResponse:
    """Return one step of an ingest as a message."""
    return source_pb.IngestDocumentsResponse(
        path=progress.path,
        state=_STATES[progress.state],
        document_id=progress.document_id,
        reason=progress.reason,
        message=progress.message,
        passages=progress.passages,
        unchanged=progress.unchanged,
    )


def to_part(request: source_pb.IngestDocumentsRequest) -> Part:
    """Return one message of an upload."""
    match request.WhichOneof("payload"):
        case "header":
            header = request.header
            return FileStart(
                source=header.source_id,
                path=header.path,
                size=header.size,
                url=header.url,
                metadata=dict(header.metadata),
            )
        case "chunk":
            return FileBytes(request.chunk)
        case "end":
            return FileEnd()
        case _:
            raise InvalidRequest("an upload message holds neither header, chunk nor end")
