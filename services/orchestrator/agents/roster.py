"""The agent that a run works with: the operator's or a kept one, with the prompt that it refers to in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from services.chassis.errors import FieldViolation, InvalidRequest
from services.chassis.identity import Principal
from services.orchestrator.agents.keeping import Operators
from services.orchestrator.agents.ports import DefinitionStore, PromptNotFound
from services.orchestrator.agents.problems import form_problems, router_problems
from services.orchestrator.domain.agent import Agent, Prompt


class AgentsByName(Protocol):
    """Finds the agents that a principal may use."""

    async def get(self, principal: Principal, id_or_name: str, version: int = 0) -> Agent:
        """Return one (the default one for an empty name), or raise AgentNotFound."""
        ...


class KeptPrompts:
    """Prompts as agents refer to them. An agent reads its owner's prompts and shared ones, whoever runs it."""

    def __init__(self, operators: Operators[Prompt], store: DefinitionStore[Prompt]) -> None:
        self._operators = operators
        self._store = store

    async def of_owner(self, tenant: str, owner: str, name: str, version: int) -> Prompt:
        """Return the prompt as agents of `owner` may use it (0: its newest version), or raise PromptNotFound."""
        found = self._operators.find(name)
        if found is None:
            found = await self._store.get(tenant, name)
            # By its name only: an id would say what the name hides.
            if found is not None and (found.name != name or not (found.shared or found.owner == owner)):
                found = None
        if found is not None and version not in (0, found.version):
            found = None if found.read_only else await self._store.version(tenant, found.prompt_id, version)
        if found is None:
            text = f"there is no prompt '{name}'" + (f" of version {version}" if version else "")
            raise PromptNotFound(f"{text}; create it, or choose one of GET /v1/prompts", metadata={"prompt": name})
        return found


class Roster:
    """Agents as runs are given them."""

    def __init__(self, agents: AgentsByName, prompts: KeptPrompts) -> None:
        self._agents = agents
        self._prompts = prompts

    async def get(self, principal: Principal, agent_id: str) -> Agent:
        """Return an agent with its prompt in place. Raises AgentNotFound, PromptNotFound."""
        agent = await self._agents.get(principal, agent_id)
        return await self._complete(principal, agent, agent.owner)

    async def inline(self, principal: Principal, agent: Agent) -> Agent:
        """Return the agent of one request with its prompt in place. Raises PromptNotFound, InvalidRequest."""
        violations = [
            FieldViolation(field=f"inline_agent.{problem.field}", description=problem.description)
            for problem in (*form_problems(agent), *router_problems(agent))
        ]
        if violations:
            raise InvalidRequest(f"the agent is wrong: {violations[0].description}", violations=violations)
        named = replace(agent, agent_id="inline", name=agent.name or "inline", owner=principal.user)
        return await self._complete(principal, named, principal.user)

    async def _complete(self, principal: Principal, agent: Agent, owner: str) -> Agent:
        if not agent.prompt_name:
            return agent
        found = await self._prompts.of_owner(principal.tenant, owner, agent.prompt_name, agent.prompt_version)
        return replace(agent, prompt=found.template, prompt_version=found.version)
