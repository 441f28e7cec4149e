"""Agents: those to choose from, and keeping one's own."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from proctor.orchestrator.v1 import agent_service_pb2 as pb
from services.chassis.errors import PermissionDenied
from services.gateway import openapi
from services.gateway.access import Asker, Author
from services.gateway.auth import Caller
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.bodies.agents import SaveAgent
from services.gateway.dependencies import PartsDep
from services.gateway.replies import json_reply

router = APIRouter(prefix="/v1/agents", tags=["agents"])

PageSize = Annotated[int, Query(ge=0, le=500)]
PageToken = Annotated[str, Query(max_length=512)]
Version = Annotated[int, Query(ge=0, le=2**31 - 1, description="0 is the newest.")]


@router.get("", responses=openapi.answers(pb.ListAgentsResponse), response_class=Response)
async def list_agents(parts: PartsDep, caller: Asker, page_size: PageSize = 0, page_token: PageToken = "") -> Response:
    """List the agents the caller may use, the operator's first."""
    metadata = parts.metadata(caller)
    if caller.agent:
        only = await parts.backends.agents.GetAgent(
            pb.GetAgentRequest(agent_id=caller.agent), metadata=metadata, timeout=UNARY_TIMEOUT
        )
        return json_reply(pb.ListAgentsResponse(agents=[only.agent]))
    request = pb.ListAgentsRequest(page_size=page_size, page_token=page_token)
    return json_reply(await parts.backends.agents.ListAgents(request, metadata=metadata, timeout=UNARY_TIMEOUT))


@router.post("", status_code=201, responses=openapi.answers(pb.CreateAgentResponse, 201), response_class=Response)
async def create_agent(body: SaveAgent, parts: PartsDep, caller: Author) -> Response:
    """Keep a new agent; every field that cannot serve is named in `violations`."""
    request = pb.CreateAgentRequest(agent=body.agent.to_proto(), validate_only=body.validate_only)
    reply = await parts.backends.agents.CreateAgent(
        request, metadata=parts.metadata(unbound(caller)), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply, 201)


@router.get("/{agent_id}", responses=openapi.answers(pb.GetAgentResponse), response_class=Response)
async def get_agent(agent_id: str, parts: PartsDep, caller: Asker, version: Version = 0) -> Response:
    """Return one agent by id or name."""
    request = pb.GetAgentRequest(agent_id=agent_id, version=version)
    reply = await parts.backends.agents.GetAgent(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    if caller.agent not in ("", reply.agent.agent_id, reply.agent.name):
        unbound(caller)
    return json_reply(reply)


@router.put("/{agent_id}", responses=openapi.answers(pb.UpdateAgentResponse), response_class=Response)
async def update_agent(agent_id: str, body: SaveAgent, parts: PartsDep, caller: Author) -> Response:
    """Make a new version of an agent, whole; `version` is the one that was read."""
    request = pb.UpdateAgentRequest(agent_id=agent_id, agent=body.agent.to_proto(), validate_only=body.validate_only)
    reply = await parts.backends.agents.UpdateAgent(
        request, metadata=parts.metadata(unbound(caller)), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


@router.delete("/{agent_id}", status_code=204)
async def delete_agent(agent_id: str, parts: PartsDep, caller: Author) -> Response:
    """Delete an agent with all its versions; runs that have begun go on."""
    await parts.backends.agents.DeleteAgent(
        pb.DeleteAgentRequest(agent_id=agent_id), metadata=parts.metadata(unbound(caller)), timeout=UNARY_TIMEOUT
    )
    return Response(status_code=204)


@router.get("/{agent_id}/versions", responses=openapi.answers(pb.ListAgentVersionsResponse), response_class=Response)
async def list_agent_versions(
    agent_id: str, parts: PartsDep, caller: Asker, page_size: PageSize = 0, page_token: PageToken = ""
) -> Response:
    """List the versions of an agent, newest first."""
    request = pb.ListAgentVersionsRequest(agent_id=agent_id, page_size=page_size, page_token=page_token)
    reply = await parts.backends.agents.ListAgentVersions(
        request, metadata=parts.metadata(unbound(caller)), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


def unbound(caller: Caller) -> Caller:
    """Return the caller, or raise PermissionDenied when its key is published for one agent."""
    if caller.agent:
        raise PermissionDenied(
            f"this key serves the agent '{caller.agent}' only; use another key", metadata={"agent": caller.agent}
        )
    return caller
