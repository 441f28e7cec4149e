"""Tools that agents may have, and the servers they come from."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from proctor.orchestrator.v1 import tool_service_pb2 as pb
from services.gateway import openapi
from services.gateway.access import Asker
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.dependencies import PartsDep
from services.gateway.replies import json_reply

router = APIRouter(prefix="/v1/tools", tags=["tools"])


@router.get("", responses=openapi.answers(pb.ListToolsResponse), response_class=Response)
async def list_tools(
    parts: PartsDep,
    caller: Asker,
    page_size: Annotated[int, Query(ge=0, le=500)] = 0,
    page_token: Annotated[str, Query(max_length=512)] = "",
) -> Response:
    """List the tools that runs of the caller may be offered, by name."""
    request = pb.ListToolsRequest(page_size=page_size, page_token=page_token)
    reply = await parts.backends.tools.ListTools(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


@router.get("/servers", responses=openapi.answers(pb.ListToolServersResponse), response_class=Response)
async def list_tool_servers(parts: PartsDep, caller: Asker, *, connect: Annotated[bool, Query()] = False) -> Response:
    """List the MCP servers of the caller's tenant with their state, connected first when `connect` is true."""
    request = pb.ListToolServersRequest(connect=connect)
    reply = await parts.backends.tools.ListToolServers(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)
