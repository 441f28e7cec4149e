"""Agents to choose from."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from proctor.orchestrator.v1 import agent_service_pb2 as pb
from services.gateway import openapi
from services.gateway.access import Asker
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.dependencies import PartsDep
from services.gateway.replies import json_reply

router = APIRouter(prefix="/v1/agents", tags=["agents"])


@router.get("", responses=openapi.answers(pb.ListAgentsResponse), response_class=Response)
async def list_agents(
    parts: PartsDep,
    caller: Asker,
    page_size: Annotated[int, Query(ge=0, le=500)] = 0,
    page_token: Annotated[str, Query(max_length=512)] = "",
) -> Response:
    """List the agents the caller may use, the operator's first."""
    request = pb.ListAgentsRequest(page_size=page_size, page_token=page_token)
    reply = await parts.backends.agents.ListAgents(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


@router.get("/{agent_id}", responses=openapi.answers(pb.GetAgentResponse), response_class=Response)
async def get_agent(agent_id: str, parts: PartsDep, caller: Asker) -> Response:
    """Return one agent by id or name."""
    request = pb.GetAgentRequest(agent_id=agent_id)
    reply = await parts.backends.agents.GetAgent(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)
