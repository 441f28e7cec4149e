"""Approvals: what waits for a person, and deciding it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Literal

import grpc
from fastapi import APIRouter, Query, Response

from proctor.approval.v1 import approval_service_pb2 as pb
from services.gateway import openapi
from services.gateway.access import Decider
from services.gateway.auth import Caller
from services.gateway.backends import STREAM_TIMEOUT, UNARY_TIMEOUT
from services.gateway.bodies.approvals import Decide
from services.gateway.dependencies import Parts, PartsDep
from services.gateway.protojson import to_json_bytes
from services.gateway.replies import json_reply, stream_reply

router = APIRouter(prefix="/v1/approvals", tags=["approvals"])

State = Literal["pending", "approved", "edited", "denied", "expired", "cancelled", "answered"]
Kind = Literal["tool", "question", "continue", "client_tool"]
CHANGES = "Events `approval`: a record as it is now; the pending ones first, then each change."


@router.get("", responses=openapi.answers(pb.ListApprovalsResponse), response_class=Response)
async def list_approvals(
    parts: PartsDep,
    caller: Decider,
    state: Annotated[list[State] | None, Query()] = None,
    run_id: Annotated[str, Query(max_length=64)] = "",
    tool: Annotated[str, Query(max_length=128)] = "",
    kind: Kind | None = None,
    page_size: Annotated[int, Query(ge=0, le=500)] = 0,
    page_token: Annotated[str, Query(max_length=512)] = "",
) -> Response:
    """List records, newest first."""
    request = pb.ListApprovalsRequest(
        page_size=page_size,
        page_token=page_token,
        states=[pb.ApprovalState.Value(f"APPROVAL_STATE_{name.upper()}") for name in state or ()],
        run_id=run_id,
        tool=tool,
    )
    if kind is not None:
        request.kind = pb.ApprovalKind.Value(f"APPROVAL_KIND_{kind.upper()}")
    reply = await parts.backends.approvals.ListApprovals(
        request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


@router.get("/stream", responses=openapi.streams(CHANGES), response_class=Response)
async def watch_approvals(
    parts: PartsDep, caller: Decider, run_id: Annotated[str, Query(max_length=64)] = ""
) -> Response:
    """Stream records: those pending now, then each change. Ends when the service goes away; connect again then."""
    return stream_reply(_changes(parts, caller, run_id), parts, caller)


async def _changes(parts: Parts, caller: Caller, run_id: str) -> AsyncGenerator[bytes]:
    yield b": watching\n\n"  # the headers go out at once, also while nothing is pending
    call = parts.backends.approvals.WatchApprovals(
        pb.WatchApprovalsRequest(run_id=run_id), metadata=parts.metadata(caller), timeout=STREAM_TIMEOUT
    )
    try:
        async for reply in call:
            if reply.HasField("approval"):
                yield b"event: approval\ndata: %s\n\n" % to_json_bytes(reply.approval)
    except grpc.RpcError:
        return  # a hint's stream that breaks is opened again by its client
    finally:
        call.cancel()


@router.post("/{approval_id}/decision", responses=openapi.answers(pb.DecideResponse), response_class=Response)
async def decide(approval_id: str, body: Decide, parts: PartsDep, caller: Decider) -> Response:
    """Decide a record. The first valid decision wins; the same one again is the same one."""
    reply = await parts.backends.approvals.Decide(
        body.to_proto(approval_id), metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)
