"""Rows of the catalogue to domain values and back."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Row

from services.retrieval.adapters.sql.tables import micros, moment
from services.retrieval.domain.library import Document, DocumentState, Passage, Source, Span, Topic


def source_values(source: Source) -> dict[str, Any]:
    """Return the row of a source."""
    return {
        "id": source.id,
        "tenant": source.tenant,
        "name": source.name,
        "owner": source.owner,
        "description": source.description,
        "shared": source.shared,
        "created_at": micros(source.created_at),
        "topics": json.dumps([[topic.name, *topic.synonyms] for topic in source.topics], ensure_ascii=False),
        "retriever": source.retriever,
    }


def to_source(row: Row[Any]) -> Source:
    """Return the source of a row."""
    return Source(
        id=row.id,
        tenant=row.tenant,
        name=row.name,
        owner=row.owner,
        description=row.description,
        shared=bool(row.shared),
        created_at=moment(row.created_at),
        topics=tuple(Topic(name=name, synonyms=tuple(rest)) for name, *rest in json.loads(row.topics)),
        retriever=row.retriever,
    )


def to_document(row: Row[Any]) -> Document:
    """Return the document of a row."""
    return Document(
        id=row.id,
        tenant=row.tenant,
        source_id=row.source_id,
        path=row.path,
        title=row.title,
        media_type=row.media_type,
        size=row.size,
        state=DocumentState(row.state),
        reason=row.reason,
        message=row.message,
        passages=row.passages,
        ingested_at=moment(row.ingested_at),
        content_hash=row.content_hash,
        url=row.url,
        metadata=json.loads(row.metadata),
        revision=row.revision,
    )


def passage_values(passage: Passage) -> dict[str, Any]:
    """Return the row of a passage."""
    return {
        "id": passage.id,
        "tenant": passage.tenant,
        "source_id": passage.source_id,
        "document_id": passage.document_id,
        "revision": passage.revision,
        "ordinal": passage.ordinal,
        "start": passage.start,
        "text": passage.text,
        "spans": json.dumps([[s.start, s.end, s.heading, s.page] for s in passage.spans], ensure_ascii=False),
    }


def to_passage(row: Row[Any]) -> Passage:
    """Return the passage of a row."""
    return Passage(
        id=row.id,
        tenant=row.tenant,
        source_id=row.source_id,
        document_id=row.document_id,
        revision=row.revision,
        ordinal=row.ordinal,
        text=row.text,
        start=row.start,
        spans=tuple(
            Span(start=start, end=end, heading=heading, page=page)
            for start, end, heading, page in json.loads(row.spans)
        ),
    )
