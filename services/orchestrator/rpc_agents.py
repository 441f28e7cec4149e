"""AgentService: agents and the prompts they refer to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import grpc

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import agent_service_pb2 as pb
from proctor.orchestrator.v1 import agent_service_pb2_grpc
from services.chassis.errors import PageTokenInvalid
from services.chassis.identity import current_principal
from services.chassis.paging import decode_token, encode_token
from services.orchestrator.agents.compose import Agents
from services.orchestrator.agents.keeping import Keeper
from services.orchestrator.agents.ports import T
from services.orchestrator.codec_reflect import from_pb, to_pb
from services.orchestrator.domain.agent import Agent, Prompt

DEFAULT_PAGE = 100
Context = grpc.aio.ServicerContext[Any, Any]
Row = TypeVar("Row")


class AgentServicer(agent_service_pb2_grpc.AgentServiceServicer):
    """Agents and prompts as data."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents.agents
        self._prompts = agents.prompts

    async def ListAgents(self, request: pb.ListAgentsRequest, context: Context) -> pb.ListAgentsResponse:
        rows = await self._agents.list(current_principal())
        page, token = _page("agents", rows, request.page_size, request.page_token)
        return pb.ListAgentsResponse(agents=_agents(page), next_page_token=token)

    async def GetAgent(self, request: pb.GetAgentRequest, context: Context) -> pb.GetAgentResponse:
        found = await self._agents.get(current_principal(), request.agent_id, request.version)
        return pb.GetAgentResponse(agent=to_pb(found, agent_pb2.Agent))

    async def CreateAgent(self, request: pb.CreateAgentRequest, context: Context) -> pb.CreateAgentResponse:
        made = await self._agents.create(
            current_principal(), from_pb(request.agent, Agent), validate_only=request.validate_only
        )
        return pb.CreateAgentResponse(agent=to_pb(made, agent_pb2.Agent))

    async def UpdateAgent(self, request: pb.UpdateAgentRequest, context: Context) -> pb.UpdateAgentResponse:
        value = from_pb(request.agent, Agent)
        changed = await self._agents.update(
            current_principal(), request.agent_id, value, validate_only=request.validate_only
        )
        return pb.UpdateAgentResponse(agent=to_pb(changed, agent_pb2.Agent))

    async def DeleteAgent(self, request: pb.DeleteAgentRequest, context: Context) -> pb.DeleteAgentResponse:
        await self._agents.delete(current_principal(), request.agent_id)
        return pb.DeleteAgentResponse()

    async def ListAgentVersions(
        self, request: pb.ListAgentVersionsRequest, context: Context
    ) -> pb.ListAgentVersionsResponse:
        page, token = await _versions(self._agents, request.agent_id, request.page_size, request.page_token)
        return pb.ListAgentVersionsResponse(versions=_agents(page), next_page_token=token)

    async def ListPrompts(self, request: pb.ListPromptsRequest, context: Context) -> pb.ListPromptsResponse:
        rows = await self._prompts.list(current_principal())
        page, token = _page("prompts", rows, request.page_size, request.page_token)
        return pb.ListPromptsResponse(prompts=_prompts(page), next_page_token=token)

    async def GetPrompt(self, request: pb.GetPromptRequest, context: Context) -> pb.GetPromptResponse:
        found = await self._prompts.get(current_principal(), request.prompt_id, request.version)
        return pb.GetPromptResponse(prompt=to_pb(found, agent_pb2.Prompt))

    async def CreatePrompt(self, request: pb.CreatePromptRequest, context: Context) -> pb.CreatePromptResponse:
        made = await self._prompts.create(
            current_principal(), from_pb(request.prompt, Prompt), validate_only=request.validate_only
        )
        return pb.CreatePromptResponse(prompt=to_pb(made, agent_pb2.Prompt))

    async def UpdatePrompt(self, request: pb.UpdatePromptRequest, context: Context) -> pb.UpdatePromptResponse:
        value = from_pb(request.prompt, Prompt)
        changed = await self._prompts.update(
            current_principal(), request.prompt_id, value, validate_only=request.validate_only
        )
        return pb.UpdatePromptResponse(prompt=to_pb(changed, agent_pb2.Prompt))

    async def DeletePrompt(self, request: pb.DeletePromptRequest, context: Context) -> pb.DeletePromptResponse:
        await self._prompts.delete(current_principal(), request.prompt_id)
        return pb.DeletePromptResponse()

    async def ListPromptVersions(
        self, request: pb.ListPromptVersionsRequest, context: Context
    ) -> pb.ListPromptVersionsResponse:
        page, token = await _versions(self._prompts, request.prompt_id, request.page_size, request.page_token)
        return pb.ListPromptVersionsResponse(versions=_prompts(page), next_page_token=token)


def _agents(rows: Sequence[Agent]) -> list[agent_pb2.Agent]:
    return [to_pb(row, agent_pb2.Agent) for row in rows]


def _prompts(rows: Sequence[Prompt]) -> list[agent_pb2.Prompt]:
    return [to_pb(row, agent_pb2.Prompt) for row in rows]


async def _versions(keeper: Keeper[T], id_or_name: str, size: int, token: str) -> tuple[Sequence[T], str]:
    """Return one page of versions, newest first, and the token of the next."""
    scope = f"versions:{id_or_name}"
    limit = size or DEFAULT_PAGE
    before = _number(scope, token)
    rows = await keeper.versions(current_principal(), id_or_name, limit=limit, before=before)
    more = len(rows) == limit and rows[-1].version > 1 and not rows[-1].read_only
    return rows, encode_token(scope, rows[-1].version) if more else ""


def _page(scope: str, rows: Sequence[Row], size: int, token: str) -> tuple[Sequence[Row], str]:
    """Return one page of a list that fits in memory, and the token of the next."""
    start = _number(scope, token)
    end = start + (size or DEFAULT_PAGE)
    return rows[start:end], encode_token(scope, end) if end < len(rows) else ""


def _number(scope: str, token: str) -> int:
    if not token:
        return 0
    (number,) = decode_token(scope, token)
    if not isinstance(number, int) or number < 0:
        raise PageTokenInvalid("the page token is damaged; start again without one")
    return number
