"""Sources, their documents, and searching them."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from proctor.retrieval.v1 import retrieval_service_pb2
from proctor.retrieval.v1 import source_service_pb2 as pb
from services.gateway import ingest, openapi
from services.gateway.access import Ingester, Reader
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.bodies.sources import CreateSource, Search
from services.gateway.dependencies import PartsDep
from services.gateway.replies import json_reply
from services.gateway.routes.runs import wants_json
from services.gateway.sse import EventStream

router = APIRouter(prefix="/v1", tags=["sources"])

PageSize = Annotated[int, Query(ge=0, le=500)]
PageToken = Annotated[str, Query(max_length=512)]
PROGRESS = "Events `progress` for each file, then one `summary`, or one `error` with a problem document."
MULTIPART: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "path": {"type": "string", "description": "Path of the next file; else its file name."},
                        "url": {"type": "string", "description": "Link to the original of the next file."},
                        "file": {"type": "array", "items": {"type": "string", "format": "binary"}},
                    },
                }
            }
        },
    }
}


@router.post("/sources", status_code=201, responses=openapi.answers(pb.Source, 201), response_class=Response)
async def create_source(body: CreateSource, parts: PartsDep, caller: Ingester) -> Response:
    """Create a source."""
    request = pb.CreateSourceRequest(name=body.name, description=body.description, private=body.private)
    reply = await parts.backends.sources.CreateSource(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply.source, 201)


@router.get("/sources", responses=openapi.answers(pb.ListSourcesResponse), response_class=Response)
async def list_sources(
    parts: PartsDep, caller: Reader, page_size: PageSize = 0, page_token: PageToken = ""
) -> Response:
    """List the sources the caller may read."""
    request = pb.ListSourcesRequest(page_size=page_size, page_token=page_token)
    reply = await parts.backends.sources.ListSources(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


@router.delete("/sources/{source_id}", responses=openapi.answers(pb.DeleteSourceResponse), response_class=Response)
async def delete_source(source_id: str, parts: PartsDep, caller: Ingester) -> Response:
    """Delete a source with all its documents."""
    request = pb.DeleteSourceRequest(source_id=source_id)
    reply = await parts.backends.sources.DeleteSource(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


@router.post(
    "/sources/{source_id}/documents",
    responses=openapi.streams(PROGRESS, or_json="The summary."),
    openapi_extra=MULTIPART,
    response_class=Response,
)
async def ingest_documents(source_id: str, request: Request, parts: PartsDep, caller: Ingester) -> Response:
    """Ingest files and stream their progress; with `Accept: application/json` wait and return the summary."""
    replies = ingest.progress(parts, caller, ingest.Upload(request, source_id))
    if wants_json(request):
        return Response(orjson.dumps(await ingest.as_summary(replies)), media_type="application/json")
    return EventStream(ingest.as_events(replies), parts.settings.keepalive, watch_client=False)


@router.get(
    "/sources/{source_id}/documents", responses=openapi.answers(pb.ListDocumentsResponse), response_class=Response
)
async def list_documents(
    source_id: str,
    parts: PartsDep,
    caller: Reader,
    page_size: PageSize = 0,
    page_token: PageToken = "",
    path_glob: Annotated[str, Query(max_length=1024)] = "",
    filter: Annotated[str, Query(max_length=4096)] = "",  # noqa: A002  # its name in the query
) -> Response:
    """List the documents of a source by path."""
    request = pb.ListDocumentsRequest(
        source_id=source_id, page_size=page_size, page_token=page_token, path_glob=path_glob, filter=filter
    )
    reply = await parts.backends.sources.ListDocuments(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


@router.get(
    "/sources/{source_id}/documents/{document_id}",
    responses=openapi.answers(pb.ReadDocumentResponse),
    response_class=Response,
)
async def read_document(
    source_id: str,
    document_id: str,
    parts: PartsDep,
    caller: Reader,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
    max_characters: Annotated[int, Query(ge=0, le=200_000)] = 0,
    page: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    """Read the text of a document, from an offset or a page on; `next_offset` says where to go on."""
    request = pb.ReadDocumentRequest(
        sources=[source_id], document=document_id, offset=offset, max_characters=max_characters, page=page
    )
    reply = await parts.backends.sources.ReadDocument(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


@router.delete("/sources/{source_id}/documents/{document_id}", status_code=204)
async def delete_document(source_id: str, document_id: str, parts: PartsDep, caller: Ingester) -> Response:
    """Delete one document."""
    request = pb.DeleteDocumentRequest(source_id=source_id, document_id=document_id)
    await parts.backends.sources.DeleteDocument(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return Response(status_code=204)


@router.post("/search", responses=openapi.answers(retrieval_service_pb2.SearchResponse), response_class=Response)
async def search(body: Search, parts: PartsDep, caller: Reader) -> Response:
    """Search sources for a question."""
    request = retrieval_service_pb2.SearchRequest(**body.model_dump())
    reply = await parts.backends.retrieval.Search(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


@router.get(
    "/passages/{passage_id}",
    responses=openapi.answers(retrieval_service_pb2.GetPassageResponse),
    response_class=Response,
)
async def get_passage(
    passage_id: str, parts: PartsDep, caller: Reader, source_id: Annotated[str, Query(max_length=128)] = ""
) -> Response:
    """Return one passage with its surroundings."""
    request = retrieval_service_pb2.GetPassageRequest(passage_id=passage_id, source_id=source_id)
    reply = await parts.backends.retrieval.GetPassage(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)
