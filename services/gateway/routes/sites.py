"""Sites that a source follows: pages of the web, read again and again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from google.protobuf.duration_pb2 import Duration

from proctor.retrieval.v1 import source_service_pb2 as pb
from services.gateway import openapi
from services.gateway.access import Ingester, Reader
from services.gateway.auth import Caller
from services.gateway.backends import STREAM_TIMEOUT, UNARY_TIMEOUT
from services.gateway.bodies.sources import SyncSite
from services.gateway.dependencies import Parts, PartsDep
from services.gateway.problems import problem_of
from services.gateway.protojson import to_json, to_json_bytes
from services.gateway.replies import json_reply
from services.gateway.routes.runs import wants_json
from services.gateway.sse import EventStream

router = APIRouter(prefix="/v1", tags=["sources"])

PROGRESS = "Events `site` (first and last) and `page` for each page, or one `error` with a problem document."


@router.post(
    "/sources/{source_id}/sites",
    responses=openapi.streams(PROGRESS, or_json="The site at its end and what became of each page."),
    response_class=Response,
)
async def sync_site(source_id: str, body: SyncSite, request: Request, parts: PartsDep, caller: Ingester) -> Response:
    """Bring a web page, the pages it leads to, or a sitemap's into a source, or bring them up to date.

    The sync goes on when the caller leaves; with `Accept: application/json` it is waited for.
    """
    asked = pb.SyncSiteRequest(
        source_id=source_id, url=body.url, max_pages=body.max_pages, max_depth=body.max_depth, every=_hours(body)
    )
    steps = _steps(parts, caller, asked)
    first = await anext(steps)  # a refusal comes before it, and is an answer of its own
    if wants_json(request):
        return Response(orjson.dumps(await _summary(first, steps)), media_type="application/json")
    return EventStream(_events(first, steps), parts.settings.keepalive)


@router.get("/sources/{source_id}/sites", responses=openapi.answers(pb.ListSitesResponse), response_class=Response)
async def list_sites(
    source_id: str,
    parts: PartsDep,
    caller: Reader,
    page_size: Annotated[int, Query(ge=0, le=500)] = 0,
    page_token: Annotated[str, Query(max_length=2048)] = "",
) -> Response:
    """List the sites of a source by address."""
    request = pb.ListSitesRequest(source_id=source_id, page_size=page_size, page_token=page_token)
    reply = await parts.backends.sources.ListSites(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


@router.delete(
    "/sources/{source_id}/sites/{site_id}", responses=openapi.answers(pb.DeleteSiteResponse), response_class=Response
)
async def delete_site(source_id: str, site_id: str, parts: PartsDep, caller: Ingester) -> Response:
    """Give a site up and delete the documents it brought."""
    request = pb.DeleteSiteRequest(source_id=source_id, site_id=site_id)
    reply = await parts.backends.sources.DeleteSite(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


def _hours(body: SyncSite) -> Duration | None:
    return Duration(seconds=3600 * body.every_hours) if body.every_hours else None


async def _steps(parts: Parts, caller: Caller, asked: pb.SyncSiteRequest) -> AsyncGenerator[pb.SyncSiteResponse]:
    call = parts.backends.sources.SyncSite(asked, metadata=parts.metadata(caller), timeout=STREAM_TIMEOUT)
    try:
        async for step in call:
            yield step
    finally:
        call.cancel()


async def _events(first: pb.SyncSiteResponse, steps: AsyncGenerator[pb.SyncSiteResponse]) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(steps):
            yield _event(first)
            async for step in steps:
                yield _event(step)
    except Exception as error:  # noqa: BLE001  # the response has begun: the failure can only be its last event
        yield b"event: error\ndata: %s\n\n" % orjson.dumps(problem_of(error).body())


def _event(step: pb.SyncSiteResponse) -> bytes:
    kind = step.WhichOneof("progress") or "site"
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), to_json_bytes(getattr(step, kind)))


async def _summary(first: pb.SyncSiteResponse, steps: AsyncGenerator[pb.SyncSiteResponse]) -> dict[str, Any]:
    site = first.site
    pages: list[Any] = []
    async with aclosing(steps):
        async for step in steps:
            if step.HasField("page"):
                pages.append(to_json(step.page))
            else:
                site = step.site
    return {"site": to_json(site), "pages": pages}
