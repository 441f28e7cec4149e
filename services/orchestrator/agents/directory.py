"""Which agents there are: the operator's, and two that come with the suite."""

from __future__ import annotations

from collections.abc import Iterable

import grpc

from services.chassis.errors import ServiceError
from services.orchestrator.domain.agent import Agent, AgentType

DEFAULT_AGENT = "assistant"


class AgentNotFound(ServiceError):
    """The named agent does not exist."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "AGENT_NOT_FOUND"


def built_in() -> tuple[Agent, ...]:
    """Return the agents that come with the suite."""
    return (
        Agent(
            agent_id=DEFAULT_AGENT,
            name=DEFAULT_AGENT,
            type=AgentType.AGENTIC,
            description="Searches the documents as it sees fit, and may ask to run Python.",
        ),
        Agent(
            agent_id="classic",
            name="classic",
            type=AgentType.CLASSIC,
            description="Looks the question up first, then answers from what was found.",
        ),
    )


class AgentDirectory:
    """Agents by id or name. The operator's agent of a built-in's name takes its place."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._agents = {agent.agent_id: agent for agent in (*built_in(), *agents)}

    def get(self, agent_id: str) -> Agent:
        """Return the agent (the default one for an empty id), or raise AgentNotFound naming those there are."""
        wanted = agent_id or DEFAULT_AGENT
        alias = "classic" if wanted == "react" else wanted
        for agent in self._agents.values():
            if alias in (agent.agent_id, agent.name):
                return agent
        known = ", ".join(sorted(self._agents))
        raise AgentNotFound(f"agent '{wanted}' does not exist; there are: {known}", metadata={"agent_id": wanted})

    def list(self) -> tuple[Agent, ...]:
        """Return all agents, the default first, then by name."""
        return tuple(sorted(self._agents.values(), key=lambda a: (a.agent_id != DEFAULT_AGENT, a.name)))
