"""Which agents there are: the operator's, and three that come with the suite."""

from __future__ import annotations

from collections.abc import Iterable

from services.orchestrator.agents.ports import AgentNotFound
from services.orchestrator.domain.agent import Agent, AgentType, Prompt

DEFAULT_AGENT = "assistant"


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
        Agent(
            agent_id="research",
            name="research",
            type=AgentType.RESEARCH,
            description="Plans, works on the steps side by side, and brings their findings together.",
        ),
    )


class AgentDirectory:
    """Agents by id or name. The operator's agent of a built-in's name takes its place."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._agents = {agent.agent_id: agent for agent in (*built_in(), *agents)}

    def get(self, agent_id: str) -> Agent:
        """Return the agent (the default one for an empty id), or raise AgentNotFound naming those there are."""
        found = self.find(agent_id)
        if found is None:
            known = ", ".join(sorted(self._agents))
            raise AgentNotFound(
                f"agent '{agent_id}' does not exist; there are: {known}", metadata={"agent_id": agent_id}
            )
        return found

    def find(self, id_or_name: str) -> Agent | None:
        """Return the agent (the default one for an empty id), or None."""
        wanted = id_or_name or DEFAULT_AGENT
        alias = "classic" if wanted == "react" else wanted
        return next((agent for agent in self._agents.values() if alias in (agent.agent_id, agent.name)), None)

    def list(self) -> tuple[Agent, ...]:
        """Return all agents, the default first, then by name."""
        return tuple(sorted(self._agents.values(), key=lambda a: (a.agent_id != DEFAULT_AGENT, a.name)))


class PromptDirectory:
    """The operator's prompts by name."""

    def __init__(self, prompts: Iterable[Prompt] = ()) -> None:
        self._prompts = {prompt.name: prompt for prompt in prompts}

    def find(self, id_or_name: str) -> Prompt | None:
        """Return the prompt, or None."""
        return self._prompts.get(id_or_name)

    def list(self) -> tuple[Prompt, ...]:
        """Return all prompts, by name."""
        return tuple(self._prompts[name] for name in sorted(self._prompts))
