"""Strategies put together: one for each kind of agent, each behind the router."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.chassis.clock import Ids
from services.orchestrator.agents.prepare import Preparer
from services.orchestrator.consult import Consultant
from services.orchestrator.domain.agent import Agent, AgentType
from services.orchestrator.gate import Gate
from services.orchestrator.guardrails.guards import Guards
from services.orchestrator.loop import Loop
from services.orchestrator.models.ports import PersonalCatalogue
from services.orchestrator.offer import Offers
from services.orchestrator.routing.by_model import ModelClassifier
from services.orchestrator.routing.config import ClassifierKind
from services.orchestrator.routing.ports import Classifier
from services.orchestrator.routing.routed import Routed
from services.orchestrator.routing.router import Router, RouterSettings
from services.orchestrator.routing.small_talk import SmallTalk
from services.orchestrator.strategies.agent_tools import AgentsThere, WorkflowTools
from services.orchestrator.strategies.direct import Direct
from services.orchestrator.strategies.ports import Strategies, Strategy
from services.orchestrator.strategies.research.plan import Planner
from services.orchestrator.strategies.research.research import ResearchStrategy
from services.orchestrator.strategies.workflow.agents import AgentNodes, AgentsByName
from services.orchestrator.strategies.workflow.calls import Calls
from services.orchestrator.strategies.workflow.nodes import Nodes
from services.orchestrator.strategies.workflow.strategy import WorkflowStrategy
from services.orchestrator.tools.ports import Toolbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What strategies work with."""

    preparer: Preparer
    loop: Loop
    gate: Gate
    consultant: Consultant
    embeddings: Classifier
    router: RouterSettings
    ids: Ids
    toolbox: Toolbox
    offers: Offers
    agents: AgentsByName
    there: AgentsThere
    operators: Sequence[Agent]
    catalogue: PersonalCatalogue
    guards: Guards


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """The strategy of every kind of agent, and the workflows as tools of other agents."""

    strategies: Strategies
    workflows: WorkflowTools


def compose_strategies(means: Means) -> Composed:
    """Return the strategies over what they work with."""
    direct = Direct(means.preparer, means.loop)
    research = ResearchStrategy(
        preparer=means.preparer,
        planner=Planner(means.consultant),
        loop=means.loop,
        gate=means.gate,
        catalogue=means.catalogue,
        ids=means.ids,
    )
    strategies: dict[AgentType, Strategy] = {
        AgentType.CLASSIC: direct,
        AgentType.AGENTIC: direct,
        AgentType.RESEARCH: research,
    }
    # Workflows lead agents of every kind, other workflows among them; routers stand before whole runs only.
    calls = Calls(means.toolbox, means.gate)
    agents = AgentNodes(means.agents, means.offers, calls, means.catalogue, strategies)
    workflow = WorkflowStrategy(Nodes(agents, calls), calls, means.guards)
    strategies[AgentType.WORKFLOW] = workflow
    router = Router(
        {
            ClassifierKind.MODEL: ModelClassifier(means.consultant),
            ClassifierKind.EMBEDDINGS: means.embeddings,
        },
        means.router,
    )
    small_talk = SmallTalk(means.loop)
    return Composed(
        strategies={kind: Routed(strategy, small_talk, router) for kind, strategy in strategies.items()},
        workflows=WorkflowTools(means.agents, means.there, means.operators, workflow, calls),
    )
