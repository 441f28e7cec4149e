"""What is wrong with an agent or a prompt, as far as that needs nobody else."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from datetime import timedelta

from services.chassis.errors import FieldViolation
from services.orchestrator.agents.known_tools import Tools, binds
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.agents.templates import PromptInvalid
from services.orchestrator.checks import check_schema
from services.orchestrator.domain.agent import Agent, AgentType
from services.orchestrator.routing.config import RouterInvalid, read_router
from services.orchestrator.workflow.validate import validate

# No slash, which paths and `server/tool` use; an id is told from a name by its form.
_NAME = re.compile(r"[^\W_][\w .·-]{0,127}")
_ID = re.compile(r"(?:agent|prompt|own)-[0-9a-f]{32}")
# The agent of a single request, and the page's address of a form.
_RESERVED = frozenset({"inline", "new"})
# The form of BCP 47: a language, then script, region and variants.
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8})*")

Problems = Iterator[FieldViolation]


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
            yield f"the template names the tool '{call.tool}', which it does not have or people answer{hint}"


def near(name: str, known: Collection[str]) -> str:
    """Return a hint at names like this one, else at all there are, to follow a statement."""
    similar = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.5) or sorted(known)[:20]
    return f"; there are: {', '.join(similar)}" if similar else "; there is none"


def name_problems(name: str) -> Problems:
    """Yield what is wrong with a name."""
    if not name:
        yield at("name", "give it a name")
    elif not _NAME.fullmatch(name):
        rule = "begin with a letter or digit, then letters, digits, spaces and . _ - ·, 128 at most"
        yield at("name", f"'{name}' is no name: {rule}")
    elif _ID.fullmatch(name) or name in _RESERVED:
        yield at("name", f"'{name}' is reserved; choose another name")


def tool_problems(value: Agent, known: Tools) -> Problems:
    """Yield what is wrong with the tools of an agent, their policies apart."""
    for place, binding in enumerate(value.tools):
        if not known.has(binding.tool):
            yield at(f"tools[{place}].tool", f"there is no tool '{binding.tool}'{near(binding.tool, known.names)}")
        if binding.deadline is not None and binding.deadline <= timedelta():
            yield at(f"tools[{place}].deadline", "must be longer than 0 seconds")


def runnable(value: Agent, known: Tools) -> frozenset[str]:
    """Return the tools that the agent has and that a template may name. Search is there where its sources say so."""
    names = known.names
    if value.tools:
        names = frozenset(n for n in names if n == "search" or any(binds(b.tool, n) for b in value.tools))
    return names - set(known.asking)


def router_problems(value: Agent) -> Problems:
    """Yield what is wrong with the router of an agent."""
    if value.router_json:
        try:
            read_router(value.router_json)
        except RouterInvalid as error:
            yield at("router_json", str(error))


def workflow_problems(workflow_yaml: str, known: Tools, agents: Collection[str]) -> Problems:
    """Yield what is wrong with a workflow; which tools there are is not checked while a server is away."""
    for problem in validate(workflow_yaml, known.schemas if known.is_complete else None, agents):
        yield at(f"workflow_yaml.{problem.where}".rstrip("."), problem.message)


def form_problems(value: Agent) -> Problems:
    """Yield what is wrong with caps, output, language and type."""
    budget = value.budget
    if budget.wall_time is not None and budget.wall_time <= timedelta():
        yield at("budget.wall_time", "must be longer than 0 seconds")
    for name in ("rounds", "tokens"):
        cap = getattr(budget, name)
        if cap is not None and cap < 1:
            yield at(f"budget.{name}", "must be at least 1")
    if value.output.json_schema and (problem := check_schema(value.output.json_schema)):
        yield at("output.json_schema", f"is not a JSON Schema: {problem}")
    if value.language and not _LANGUAGE.fullmatch(value.language):
        yield at("language", f"'{value.language}' is no language tag; say for example en or zh-CN")
    if value.type is AgentType.WORKFLOW and not value.workflow_yaml.strip():
        yield at("workflow_yaml", "a workflow agent needs a workflow")
    if value.type is not AgentType.WORKFLOW and value.workflow_yaml:
        yield at("workflow_yaml", "goes with the type workflow only")


def at(field: str, description: str) -> FieldViolation:
    """Return a violation."""
    return FieldViolation(field=field, description=description)
