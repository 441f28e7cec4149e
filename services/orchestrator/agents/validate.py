"""What is checked before an agent or a prompt is kept, so that no run fails for what could have been said then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

from services.chassis.errors import FieldViolation, ServiceError
from services.chassis.identity import Principal
from services.orchestrator.agents.known_tools import Tools
from services.orchestrator.agents.ports import DefinitionStore, InUse
from services.orchestrator.agents.problems import (
    Problems,
    at,
    form_problems,
    name_problems,
    near,
    router_problems,
    runnable,
    template_problems,
    tool_problems,
    workflow_problems,
)
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.domain.agent import Agent, Prompt, ToolBinding
from services.orchestrator.models.ports import PersonalCatalogue


class Policies(Protocol):
    """Checks policies where they are evaluated."""

    async def check_policies(self, principal: Principal, bindings: Sequence[ToolBinding]) -> Sequence[FieldViolation]:
        """Return what cannot serve, by field `bindings[i].…`."""
        ...


class Sources(Protocol):
    """Knows the sources of a principal."""

    async def source_names(self, principal: Principal) -> Collection[str]:
        """Return ids and names of the sources that `principal` may read."""
        ...


class KnownTools(Protocol):
    """Knows which tools agents may have."""

    async def known(self, principal: Principal) -> Tools:
        """Return the tools that `principal` may give an agent."""
        ...


class AgentNames(Protocol):
    """Knows the agents that a workflow may name."""

    async def agent_names(self, principal: Principal) -> Collection[str]:
        """Return ids and names of the agents that `principal` may use."""
        ...


class PromptNames(Protocol):
    """Looks up the prompt that an agent refers to."""

    async def of_owner(self, tenant: str, owner: str, name: str, version: int) -> Prompt:
        """Return the prompt as agents of `owner` may use it, or raise PromptNotFound."""
        ...


class AgentChecker:
    """Checks agents."""

    def __init__(
        self,
        *,
        prompts: Prompts,
        kept_prompts: PromptNames,
        catalogue: PersonalCatalogue,
        policies: Policies,
        sources: Sources,
        tools: KnownTools,
        agents: AgentNames,
    ) -> None:
        self._prompts = prompts
        self._kept_prompts = kept_prompts
        self._catalogue = catalogue
        self._policies = policies
        self._sources = sources
        self._tools = tools
        self._agents = agents

    async def problems(self, principal: Principal, value: Agent, before: Agent | None) -> Sequence[FieldViolation]:
        """Return every field that cannot serve."""
        known = await self._tools.known(principal)
        found = [*name_problems(value.name), *form_problems(value), *self._model_problems(principal, value, before)]
        found += tool_problems(value, known)
        found += [problem async for problem in self._prompt_problems(principal, value, known)]
        found += await self._source_problems(principal, value, before)
        if value.tools:
            for problem in await self._policies.check_policies(principal, value.tools):
                found.append(at(problem.field.replace("bindings[", "tools[", 1), problem.description))
        found += router_problems(value)
        if value.workflow_yaml:
            names = await self._agents.agent_names(principal)
            found += workflow_problems(value.workflow_yaml, known, set(names) - {value.agent_id, value.name})
        return found

    async def before_delete(self, principal: Principal, value: Agent) -> None:
        """Let it go: runs that have begun keep what they were given."""

    def _model_problems(self, principal: Principal, value: Agent, before: Agent | None) -> Problems:
        if not value.model or (before is not None and before.model == value.model):
            return
        try:
            self._catalogue.get_for(value.model, principal)
        except ServiceError as error:
            yield at("model", error.message)

    async def _prompt_problems(self, principal: Principal, value: Agent, known: Tools) -> AsyncIterator[FieldViolation]:
        if value.prompt and value.prompt_name:
            yield at("prompt_name", "give a prompt of its own or the name of a kept one, not both")
            return
        field, template = "prompt", value.prompt
        if value.prompt_name:
            field = "prompt_name"
            try:
                kept = await self._kept_prompts.of_owner(
                    principal.tenant, value.owner, value.prompt_name, value.prompt_version
                )
            except ServiceError as error:
                yield at(field, error.message)
                return
            template = kept.template
        elif value.prompt_version:
            yield at("prompt_version", "goes with prompt_name only")
        for problem in template_problems(self._prompts, template, runnable(value, known)):
            yield at(field, problem)

    async def _source_problems(self, principal: Principal, value: Agent, before: Agent | None) -> list[FieldViolation]:
        if not value.sources:
            return []
        known = set(await self._sources.source_names(principal))
        if before is not None and before.owner != principal.user:
            # Who changes another's agent may not see what its owner reads in private.
            known |= {binding.source for binding in before.sources}
        found = []
        seen: set[str] = set()
        for place, binding in enumerate(value.sources):
            if binding.source in seen:
                found.append(at(f"sources[{place}].source", f"'{binding.source}' stands twice"))
            elif binding.source not in known:
                text = f"there is no source '{binding.source}'{near(binding.source, known)}"
                found.append(at(f"sources[{place}].source", text))
            seen.add(binding.source)
        return found


class PromptChecker:
    """Checks prompts. A prompt that agents refer to keeps its name and is not deleted."""

    def __init__(self, prompts: Prompts, agents: DefinitionStore[Agent], tools: KnownTools) -> None:
        self._prompts = prompts
        self._agents = agents
        self._tools = tools

    async def problems(self, principal: Principal, value: Prompt, before: Prompt | None) -> Sequence[FieldViolation]:
        """Return every field that cannot serve."""
        found = list(name_problems(value.name))
        if not value.template.strip():
            found.append(at("template", "is empty; write the prompt"))
        known = await self._tools.known(principal)
        runnable = known.names - set(known.asking)
        found += [at("template", problem) for problem in template_problems(self._prompts, value.template, runnable)]
        if before is not None and before.name != value.name and (users := await self._users(principal, before)):
            found.append(at("name", f"the agents {users} refer to '{before.name}'; keep the name"))
        return found

    async def before_delete(self, principal: Principal, value: Prompt) -> None:
        """Raise InUse when agents refer to the prompt."""
        if users := await self._users(principal, value):
            raise InUse(
                f"the agents {users} refer to the prompt '{value.name}'; change them first",
                metadata={"agents": users},
            )

    async def _users(self, principal: Principal, value: Prompt) -> str:
        agents = await self._agents.list(principal.tenant)
        return ", ".join(agent.name for agent in agents if agent.prompt_name == value.name)
