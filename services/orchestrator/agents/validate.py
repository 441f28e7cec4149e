"""What is checked before an agent or a prompt is kept, so that no run fails for what could have been said then."""

from __future__ import annotations

import difflib
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import Protocol

from services.chassis.errors import FieldViolation, ServiceError
from services.chassis.identity import Principal
from services.orchestrator.agents.known_tools import matches
from services.orchestrator.agents.ports import DefinitionStore, InUse
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.agents.templates import PromptInvalid
from services.orchestrator.checks import check_schema
from services.orchestrator.domain.agent import Agent, AgentType, Prompt, ToolBinding
from services.orchestrator.models.ports import PersonalCatalogue

# No slash, which paths and `server/tool` use; an id is told from a name by its form.
_NAME = re.compile(r"[^\W_][\w .·-]{0,127}")
_ID = re.compile(r"(?:agent|prompt|own)-[0-9a-f]{32}")
_RESERVED = frozenset({"inline"})
# The form of BCP 47: a language, then script, region and variants.
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8})*")

Problems = Iterator[FieldViolation]


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

    async def tool_names(self, principal: Principal) -> Collection[str]:
        """Return the names that `principal` may give an agent."""
        ...

    def answered_by_people(self) -> Collection[str]:
        """Return the tools that people answer: a template cannot name them."""
        ...


class PromptNames(Protocol):
    """Looks up the prompt that an agent refers to."""

    async def of_owner(self, tenant: str, owner: str, name: str, version: int) -> Prompt:
        """Return the prompt as agents of `owner` may use it, or raise PromptNotFound."""
        ...


Check = Callable[[Agent], Problems]


class AgentChecker:
    """Checks agents. `more` are the checks of parts that have a grammar of their own."""

    def __init__(
        self,
        *,
        prompts: Prompts,
        kept_prompts: PromptNames,
        catalogue: PersonalCatalogue,
        policies: Policies,
        sources: Sources,
        tools: KnownTools,
        more: Sequence[Check] = (),
    ) -> None:
        self._prompts = prompts
        self._kept_prompts = kept_prompts
        self._catalogue = catalogue
        self._policies = policies
        self._sources = sources
        self._tools = tools
        self._more = more

    async def problems(self, principal: Principal, value: Agent, before: Agent | None) -> Sequence[FieldViolation]:
        """Return every field that cannot serve."""
        known = await self._tools.tool_names(principal)
        found = [*_name_problems(value.name), *_form_problems(value), *self._model_problems(principal, value, before)]
        found += _tool_problems(value, known)
        found += [problem async for problem in self._prompt_problems(principal, value, known)]
        found += await self._source_problems(principal, value)
        if value.tools:
            for problem in await self._policies.check_policies(principal, value.tools):
                found.append(_at(problem.field.replace("bindings[", "tools[", 1), problem.description))
        for check in self._more:
            found += check(value)
        return found

    async def before_delete(self, principal: Principal, value: Agent) -> None:
        """Let it go: runs that have begun keep what they were given."""

    def _model_problems(self, principal: Principal, value: Agent, before: Agent | None) -> Problems:
        if not value.model or (before is not None and before.model == value.model):
            return
        try:
            self._catalogue.get_for(value.model, principal)
        except ServiceError as error:
            yield _at("model", error.message)

    async def _prompt_problems(
        self, principal: Principal, value: Agent, known: Collection[str]
    ) -> AsyncIterator[FieldViolation]:
        if value.prompt and value.prompt_name:
            yield _at("prompt_name", "give a prompt of its own or the name of a kept one, not both")
            return
        field, template = "prompt", value.prompt
        if value.prompt_name:
            field = "prompt_name"
            try:
                kept = await self._kept_prompts.of_owner(
                    principal.tenant, value.owner, value.prompt_name, value.prompt_version
                )
            except ServiceError as error:
                yield _at(field, error.message)
                return
            template = kept.template
        elif value.prompt_version:
            yield _at("prompt_version", "goes with prompt_name only")
        for problem in template_problems(self._prompts, template, _runnable(value, known, self._tools)):
            yield _at(field, problem)

    async def _source_problems(self, principal: Principal, value: Agent) -> list[FieldViolation]:
        if not value.sources:
            return []
        known = await self._sources.source_names(principal)
        found = []
        seen: set[str] = set()
        for place, binding in enumerate(value.sources):
            if binding.source in seen:
                found.append(_at(f"sources[{place}].source", f"'{binding.source}' stands twice"))
            elif binding.source not in known:
                text = f"there is no source '{binding.source}'{near(binding.source, known)}"
                found.append(_at(f"sources[{place}].source", text))
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
        found = list(_name_problems(value.name))
        if not value.template.strip():
            found.append(_at("template", "is empty; write the prompt"))
        known = set(await self._tools.tool_names(principal)) - set(self._tools.answered_by_people())
        found += [_at("template", problem) for problem in template_problems(self._prompts, value.template, known)]
        if before is not None and before.name != value.name and (users := await self._users(principal, before)):
            found.append(_at("name", f"the agents {users} refer to '{before.name}'; keep the name"))
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


def template_problems(prompts: Prompts, template: str, tools: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with a template: its syntax, its variables, tools that do not exist."""
    try:
        prompts.check(template)
    except PromptInvalid as error:
        yield error.message
        return
    for call in prompts.tool_calls(template):
        if call.tool not in tools:
            hint = near(call.tool, tools)
            yield f"the template names the tool '{call.tool}', which cannot run before the first call{hint}"


def near(name: str, known: Collection[str]) -> str:
    """Return a hint at names like this one, else at all there are, to follow a statement."""
    similar = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.5) or sorted(known)[:20]
    return f"; there are: {', '.join(similar)}" if similar else "; there is none"


def _name_problems(name: str) -> Problems:
    if not name:
        yield _at("name", "give it a name")
    elif not _NAME.fullmatch(name):
        rule = "begin with a letter or digit, then letters, digits, spaces and . _ - ·, 128 at most"
        yield _at("name", f"'{name}' is no name: {rule}")
    elif _ID.fullmatch(name) or name in _RESERVED:
        yield _at("name", f"'{name}' is reserved; choose another name")


def _tool_problems(value: Agent, known: Collection[str]) -> Problems:
    for place, binding in enumerate(value.tools):
        if not matches(binding.tool, known):
            text = f"there is no tool '{binding.tool}'{near(binding.tool, known)}"
            yield _at(f"tools[{place}].tool", text)
        if binding.deadline is not None and binding.deadline <= timedelta():
            yield _at(f"tools[{place}].deadline", "must be longer than 0 seconds")


def _runnable(value: Agent, known: Collection[str], tools: KnownTools) -> set[str]:
    """Return the tools that the agent has and that a template may name. Search is there where its sources say so."""
    bound = {name for name in known if any(matches(binding.tool, {name}) for binding in value.tools)}
    return ({*bound, "search"} if value.tools else set(known)) - set(tools.answered_by_people())


def _form_problems(value: Agent) -> Problems:
    budget = value.budget
    if budget.wall_time is not None and budget.wall_time <= timedelta():
        yield _at("budget.wall_time", "must be longer than 0 seconds")
    for name in ("rounds", "tokens"):
        cap = getattr(budget, name)
        if cap is not None and cap < 1:
            yield _at(f"budget.{name}", "must be at least 1")
    if value.output.json_schema and (problem := check_schema(value.output.json_schema)):
        yield _at("output.json_schema", f"is not a JSON Schema: {problem}")
    if value.language and not _LANGUAGE.fullmatch(value.language):
        yield _at("language", f"'{value.language}' is no language tag; say for example en or zh-CN")
    if value.type is AgentType.WORKFLOW and not value.workflow_yaml.strip():
        yield _at("workflow_yaml", "a workflow agent needs a workflow")
    if value.type is not AgentType.WORKFLOW and value.workflow_yaml:
        yield _at("workflow_yaml", "goes with the type workflow only")


def _at(field: str, description: str) -> FieldViolation:
    return FieldViolation(field=field, description=description)
