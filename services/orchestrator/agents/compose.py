"""Agents and prompts put together over the stores and services they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.chassis.clock import Clock, Ids
from services.chassis.errors import FieldViolation
from services.orchestrator.agents.directory import AgentDirectory, PromptDirectory
from services.orchestrator.agents.keeping import AGENT, PROMPT, Keeper
from services.orchestrator.agents.ports import DefinitionStore
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.agents.roster import KeptPrompts, Roster
from services.orchestrator.agents.validate import AgentChecker, Check, KnownTools, Policies, PromptChecker, Sources
from services.orchestrator.domain.agent import Agent, Prompt
from services.orchestrator.models.ports import PersonalCatalogue
from services.orchestrator.routing.config import RouterInvalid, read_router


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What agents are checked against, and where they are kept. `more` are checks of parts with their own grammar."""

    agents: DefinitionStore[Agent]
    prompts: DefinitionStore[Prompt]
    catalogue: PersonalCatalogue
    policies: Policies
    sources: Sources
    tools: KnownTools
    clock: Clock
    ids: Ids
    more: Sequence[Check] = ()


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
            more=(check_router, *around.more),
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


def check_router(agent: Agent) -> Iterator[FieldViolation]:
    """Yield what is wrong with the agent's router."""
    if not agent.router_json:
        return
    try:
        read_router(agent.router_json)
    except RouterInvalid as error:
        yield FieldViolation(field="router_json", description=str(error))
