"""Agents and prompts put together over the stores and services they need."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.clock import Clock, Ids
from services.chassis.identity import Principal
from services.orchestrator.agents.directory import AgentDirectory, PromptDirectory
from services.orchestrator.agents.keeping import AGENT, PROMPT, Keeper, may_use
from services.orchestrator.agents.ports import DefinitionStore
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.agents.roster import KeptPrompts, Roster
from services.orchestrator.agents.validate import AgentChecker, KnownTools, Policies, PromptChecker, Sources
from services.orchestrator.domain.agent import Agent, Prompt
from services.orchestrator.models.ports import PersonalCatalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What agents are checked against, and where they are kept."""

    agents: DefinitionStore[Agent]
    prompts: DefinitionStore[Prompt]
    catalogue: PersonalCatalogue
    policies: Policies
    sources: Sources
    tools: KnownTools
    clock: Clock
    ids: Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """The use cases, and what runs ask for their agent."""

    agents: Keeper[Agent]
    prompts: Keeper[Prompt]
    roster: Roster


def compose_agents(
    operators: AgentDirectory, operators_prompts: PromptDirectory, renderer: Prompts, around: Surroundings
) -> Agents:
    """Return the use cases of the operator's agents and prompts and the kept ones."""
    kept = KeptPrompts(operators_prompts, around.prompts)
    agents = Keeper(
        AGENT,
        operators=operators,
        store=around.agents,
        checker=AgentChecker(
            prompts=renderer,
            kept_prompts=kept,
            catalogue=around.catalogue,
            policies=around.policies,
            sources=around.sources,
            tools=around.tools,
            agents=_Names(operators, around.agents),
        ),
        clock=around.clock,
        ids=around.ids,
    )
    prompts = Keeper(
        PROMPT,
        operators=operators_prompts,
        store=around.prompts,
        checker=PromptChecker(renderer, around.agents, around.tools),
        clock=around.clock,
        ids=around.ids,
    )
    return Agents(agents=agents, prompts=prompts, roster=Roster(agents, kept))


class _Names:
    """The agents that a principal may name."""

    def __init__(self, operators: AgentDirectory, store: DefinitionStore[Agent]) -> None:
        self._operators = operators
        self._store = store

    async def agent_names(self, principal: Principal) -> frozenset[str]:
        kept = (agent for agent in await self._store.list(principal.tenant) if may_use(principal, agent))
        return frozenset(name for agent in (*self._operators.list(), *kept) for name in (agent.agent_id, agent.name))
