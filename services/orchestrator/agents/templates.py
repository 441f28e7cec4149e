"""The language of prompt templates: sandboxed Jinja over documented variables, and tools that a template names.

A template names a tool by `{{ tool("search", query=question) }}`. The call runs before the first model call, through
the gate, and its result stands in that place. Its arguments are therefore known beforehand: constants, lists and tables
of them, and the variables ARGUMENTS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from jinja2 import Environment, TemplateError, meta, nodes

from services.chassis.canonical import canonical_json
from services.chassis.errors import ServiceError
from services.orchestrator.templating import MAX_LENGTH, structure_problem

# What a template may use, and what each means. docs/agents.md has the same list.
VARIABLES: Mapping[str, str] = {
    "agent": "The agent's name.",
    "description": "The agent's description.",
    "today": "Today's date, as in 2026-01-31.",
    "tools": "Names of the tools offered to the model, a list.",
    "language": "Language tag to answer in; empty is the user's own.",
    "documents": "What was found before the first round; it then does not stand in the user's turn.",
    "user": "Who asks: the user's id.",
    "question": "What is asked, as text.",
}
TOOL = "tool"
# A list of tools is what decides which calls are there, so it cannot be an argument of one.
ARGUMENTS = frozenset({"agent", "language", "question", "today", "user"})
MAX_CALLS = 8


class PromptInvalid(ServiceError):
    """A prompt template does not compile or names what does not exist."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "INVALID_REQUEST"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCall:
    """A call that a template names; arguments may hold `Variable`s."""

    tool: str
    arguments: Mapping[str, Any]

    def arguments_json(self, values: Mapping[str, Any]) -> bytes:
        """Return the arguments as canonical JSON with the variables' values in place."""
        return canonical_json({name: _filled(value, values) for name, value in self.arguments.items()})


@dataclass(frozen=True, slots=True)
class Variable:
    """Stands for the value of a variable."""

    name: str


def check_template(environment: Environment, template: str) -> tuple[NamedCall, ...]:
    """Return the calls that `template` names, each once; raise PromptInvalid for what cannot be rendered."""
    if len(template) > MAX_LENGTH:
        raise PromptInvalid(f"the prompt has {len(template)} characters; the limit is {MAX_LENGTH}")
    try:
        tree = environment.parse(template)
        environment.from_string(template)
        names = meta.find_undeclared_variables(tree)
    except TemplateError as error:
        raise PromptInvalid(f"the prompt is not a valid template: {error}") from error
    if problem := structure_problem(tree):
        raise PromptInvalid(f"the prompt {problem}")
    if unknown := sorted(names - VARIABLES.keys() - {TOOL}):
        raise PromptInvalid(f"the prompt names unknown variables {unknown}; known are {sorted(VARIABLES)}")
    calls = [_named(call) for call in tree.find_all(nodes.Call) if _is_tool(call.node)]
    if sum(_is_tool(name) for name in tree.find_all(nodes.Name)) > len(calls):
        raise PromptInvalid('the prompt uses tool otherwise than by a call such as tool("current_time")')
    distinct = list({(call.tool, repr(call.arguments)): call for call in calls}.values())
    if len(distinct) > MAX_CALLS:
        raise PromptInvalid(f"the prompt names {len(distinct)} calls of tools; {MAX_CALLS} at most")
    return tuple(distinct)


def _is_tool(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == TOOL


def _named(call: nodes.Call) -> NamedCall:
    first = call.args[0] if len(call.args) == 1 else None
    if not isinstance(first, nodes.Const) or not isinstance(first.value, str) or call.dyn_args or call.dyn_kwargs:
        raise PromptInvalid('the prompt calls tool wrongly: write tool("name", argument=value)')
    return NamedCall(tool=first.value, arguments={pair.key: _value(pair.value, first.value) for pair in call.kwargs})


def _value(node: nodes.Node, tool: str) -> Any:
    match node:
        case nodes.Const():
            return node.value
        case nodes.Neg(node=nodes.Const(value=int() | float() as value)):
            return -value
        case nodes.Name() if node.name in ARGUMENTS:
            return Variable(node.name)
        case nodes.List():
            return [_value(item, tool) for item in node.items]
        case nodes.Dict():
            return {str(_value(pair.key, tool)): _value(pair.value, tool) for pair in node.items}
        case _:
            raise PromptInvalid(
                f"the prompt gives '{tool}' an argument that is not known before it runs; "
                f"use constants and {sorted(ARGUMENTS)}"
            )


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    match value:
        case Variable(name):
            return values[name]
        case list():
            return [_filled(item, values) for item in value]
        case dict():
            return {name: _filled(item, values) for name, item in value.items()}
        case _:
            return value
