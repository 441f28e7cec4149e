"""Allow rules of the caller, and the tenant's audit log of decisions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from proctor.approval.v1 import approval_service_pb2 as pb
from services.gateway import openapi
from services.gateway.access import Auditor, Decider
from services.gateway.backends import STREAM_TIMEOUT, UNARY_TIMEOUT
from services.gateway.bodies.base import Body
from services.gateway.bodies.runs import duration
from services.gateway.dependencies import PartsDep
from services.gateway.replies import json_reply

router = APIRouter(prefix="/v1", tags=["approvals"])

PageSize = Annotated[int, Query(ge=0, le=500)]
PageToken = Annotated[str, Query(max_length=512)]
Sequence = Annotated[int, Query(ge=0, le=2**63 - 1)]


class CreateRule(Body):
    """What is allowed from now on without asking."""

    tool: str = Field(min_length=1, max_length=128)
    conversation_id: str = Field(default="", max_length=64)
    arguments_digest: str = Field(default="", max_length=64)
    when: str = Field(default="", max_length=4096, description="CEL over `args`.")
    lifetime: float | None = Field(default=None, gt=0, le=3.2e8, description="Seconds; else for ever.")


@router.post("/allow-rules", status_code=201, responses=openapi.answers(pb.AllowRule, 201), response_class=Response)
async def create_rule(body: CreateRule, parts: PartsDep, caller: Decider) -> Response:
    """Make an allow rule for the caller's own calls."""
    request = pb.CreateAllowRuleRequest(
        tool=body.tool,
        conversation_id=body.conversation_id,
        arguments_digest=body.arguments_digest,
        when=body.when,
        lifetime=duration(body.lifetime) if body.lifetime is not None else None,
    )
    reply = await parts.backends.approvals.CreateAllowRule(
        request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply.rule, 201)


@router.get("/allow-rules", responses=openapi.answers(pb.ListAllowRulesResponse), response_class=Response)
async def list_rules(parts: PartsDep, caller: Decider, page_size: PageSize = 0, page_token: PageToken = "") -> Response:
    """List the caller's allow rules."""
    request = pb.ListAllowRulesRequest(page_size=page_size, page_token=page_token)
    reply = await parts.backends.approvals.ListAllowRules(
        request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


@router.delete("/allow-rules/{rule_id}", status_code=204)
async def delete_rule(rule_id: str, parts: PartsDep, caller: Decider) -> Response:
    """Delete an allow rule."""
    request = pb.DeleteAllowRuleRequest(rule_id=rule_id)
    await parts.backends.approvals.DeleteAllowRule(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return Response(status_code=204)


@router.get("/audit", responses=openapi.answers(pb.ListAuditEntriesResponse), response_class=Response)
async def list_audit(
    parts: PartsDep,
    caller: Auditor,
    page_size: PageSize = 0,
    page_token: PageToken = "",
    subject: Annotated[str, Query(max_length=128)] = "",
) -> Response:
    """List the tenant's decisions and rules, oldest first, each chained to the one before by its hash."""
    request = pb.ListAuditEntriesRequest(page_size=page_size, page_token=page_token, subject=subject)
    reply = await parts.backends.approvals.ListAuditEntries(
        request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


@router.get("/audit/verify", responses=openapi.answers(pb.VerifyAuditResponse), response_class=Response)
async def verify_audit(
    parts: PartsDep,
    caller: Auditor,
    known_sequence: Sequence = 0,
    known_hash: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """Recompute the chain and say where it breaks."""
    request = pb.VerifyAuditRequest(known_sequence=known_sequence, known_hash=known_hash)
    reply = await parts.backends.approvals.VerifyAudit(request, metadata=parts.metadata(caller), timeout=STREAM_TIMEOUT)
    return json_reply(reply)


@router.get(
    "/audit/export",
    responses={200: {"description": "One entry a line.", "content": {"application/x-ndjson": {}}}},
    response_class=Response,
)
async def export_audit(parts: PartsDep, caller: Auditor, after: Sequence = 0) -> Response:
    """Download the log as JSON lines."""
    call = parts.backends.approvals.ExportAudit(
        pb.ExportAuditRequest(after_sequence=after), metadata=parts.metadata(caller), timeout=STREAM_TIMEOUT
    )
    lines = _lines(call)
    first = await anext(lines, b"")
    return StreamingResponse(_from(first, lines), media_type="application/x-ndjson")


async def _lines(call: Any) -> AsyncGenerator[bytes]:
    try:
        async for reply in call:
            yield reply.json_lines
    finally:
        call.cancel()


async def _from(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(rest):
        yield first
        async for lines in rest:
            yield lines
