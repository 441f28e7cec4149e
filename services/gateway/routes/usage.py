"""Usage by day, model and user, and the quotas that bound it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from proctor.orchestrator.v1 import usage_service_pb2 as pb
from services.gateway import openapi
from services.gateway.access import Asker
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.bodies.base import Body
from services.gateway.dependencies import PartsDep
from services.gateway.replies import json_reply

router = APIRouter(prefix="/v1", tags=["usage"])
MOST = 2**63 - 1
Scope = Literal["tenant", "user", "key"]


class QuotaCaps(Body):
    """Caps over a rolling 24 hours; what is left out is no cap."""

    runs: int | None = Field(default=None, ge=0, le=MOST)
    tokens: int | None = Field(default=None, ge=0, le=MOST)
    cost_micros: int | None = Field(default=None, ge=0, le=MOST)


@router.get("/usage", responses=openapi.answers(pb.GetUsageResponse), response_class=Response)
async def get_usage(
    parts: PartsDep,
    caller: Asker,
    *,
    since: Annotated[datetime | None, Query(description="First day; left out: 30 days ago.")] = None,
    whole_tenant: Annotated[bool, Query(description="Needs the scope usage:all.")] = False,
) -> Response:
    """Return use by UTC day, user and model."""
    request = pb.GetUsageRequest(whole_tenant=whole_tenant)
    if since is not None:
        request.since.FromDatetime(since)
    reply = await parts.backends.usage.GetUsage(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


@router.get("/quotas", responses=openapi.answers(pb.ListQuotasResponse), response_class=Response)
async def list_quotas(
    parts: PartsDep,
    caller: Asker,
    page_size: Annotated[int, Query(ge=0, le=500)] = 0,
    page_token: Annotated[str, Query(max_length=512)] = "",
) -> Response:
    """List the tenant's quotas."""
    request = pb.ListQuotasRequest(page_size=page_size, page_token=page_token)
    reply = await parts.backends.usage.ListQuotas(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


@router.put("/quotas/{scope}", responses=openapi.answers(pb.SetQuotaResponse), response_class=Response)
async def set_quota(
    scope: Scope,
    body: QuotaCaps,
    parts: PartsDep,
    caller: Asker,
    subject: Annotated[str, Query(max_length=128, description="User or key id; empty: each of the scope.")] = "",
) -> Response:
    """Set the quota of a scope and subject. Needs the scope quotas:write."""
    quota = pb.Quota(scope=_scope(scope), subject=subject, **body.given())
    reply = await parts.backends.usage.SetQuota(
        pb.SetQuotaRequest(quota=quota), metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


@router.delete("/quotas/{scope}", responses=openapi.answers(pb.DeleteQuotaResponse), response_class=Response)
async def delete_quota(
    scope: Scope, parts: PartsDep, caller: Asker, subject: Annotated[str, Query(max_length=128)] = ""
) -> Response:
    """Remove the quota of a scope and subject. Needs the scope quotas:write."""
    request = pb.DeleteQuotaRequest(scope=_scope(scope), subject=subject)
    reply = await parts.backends.usage.DeleteQuota(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


def _scope(name: Scope) -> pb.QuotaScope.ValueType:
    return pb.QuotaScope.Value(f"QUOTA_SCOPE_{name.upper()}")
