"""Workflows from YAML, and what is wrong with their form."""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import fields
from typing import Any, NoReturn

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from services.chassis.canonical import canonical_json
from services.orchestrator.workflow.graph import (
    AgentWork,
    ApprovalWork,
    Branch,
    CodeWork,
    ConditionWork,
    EndWork,
    HttpWork,
    Kind,
    Node,
    NoteWork,
    ParallelWork,
    QuestionWork,
    Retry,
    StartWork,
    StateWork,
    ToolWork,
    Type,
    Variable,
    Work,
    Workflow,
)
from services.orchestrator.workflow.problems import Problem, WorkflowInvalid
from services.orchestrator.workflow.shape import NODES, WORKFLOW

MAX_CHARACTERS = 1_000_000
_WORK: dict[Kind, type[Work]] = {
    Kind.START: StartWork,
    Kind.AGENT: AgentWork,
    Kind.TOOL: ToolWork,
    Kind.CODE: CodeWork,
    Kind.HTTP: HttpWork,
    Kind.STATE: StateWork,
    Kind.CONDITION: ConditionWork,
    Kind.PARALLEL: ParallelWork,
    Kind.APPROVAL: ApprovalWork,
    Kind.QUESTION: QuestionWork,
    Kind.NOTE: NoteWork,
    Kind.END: EndWork,
}
_ZERO: dict[Type, Any] = {
    Type.STRING: "",
    Type.INT: 0,
    Type.DOUBLE: 0.0,
    Type.BOOL: False,
    Type.LIST: [],
    Type.MAP: {},
    Type.ANY: None,
}
# A word of the language in YAML, a name that Python allows in the graph.
_OTHER_NAMES = {"else": "otherwise"}
_NODE_KEYS = ("title", "next", "on_error", "timeout_seconds")


def read(text: str) -> Workflow:
    """Return the workflow that `text` describes, or raise WorkflowInvalid for what is wrong with its form."""
    document = _load(text)
    problems = tuple(_form(document))
    if problems:
        raise WorkflowInvalid(problems)
    return Workflow(
        nodes={node_id: _node(node_id, entry) for node_id, entry in document["nodes"].items()},
        state={name: _variable(name, entry) for name, entry in document.get("state", {}).items()},
        **{key: document[key] for key in ("description", "parameters", "direct_output", "steps") if key in document},
    )


class _Loader(yaml.SafeLoader):
    """Refuses what YAML would silently accept: a key that stands twice, and aliases, which grow without bound."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "aliases are not allowed; write it out", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's own
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is no text", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"'{key}' stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


# As in YAML 1.2, only true and false are truth values: a node may be called "on". Dates are texts, for JSON has none.
_OURS = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _OURS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|false|False)$"), list("tTfF"))


def _load(text: str) -> dict[str, Any]:
    if len(text) > MAX_CHARACTERS:
        _refuse(f"it has {len(text)} characters; the limit is {MAX_CHARACTERS}")
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        _refuse(f"it is not YAML: {line}{error.problem}")
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        _refuse(f"it is not YAML: {error}")
    try:
        canonical_json(document)
    except (TypeError, ValueError, RecursionError) as error:  # binary, sets, infinities
        _refuse(f"it holds what JSON does not: {error}")
    if not isinstance(document, dict):
        _refuse("it is not a mapping; write 'nodes:' with at least a start and an end")
    return document


def _refuse(message: str) -> NoReturn:
    raise WorkflowInvalid((Problem(where="", message=message),))


def _form(document: dict[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong with the form: first the whole, then each node by its own type."""
    outer = list(_errors("", document, WORKFLOW))
    yield from outer
    if not isinstance(document.get("nodes"), dict):
        return
    for node_id, entry in document["nodes"].items():
        kind = entry.get("type") if isinstance(entry, dict) else None
        if isinstance(kind, str) and kind in {one.value for one in Kind}:
            yield from _errors(f"nodes.{node_id}", entry, NODES[Kind(kind)])
    if outer:
        return
    for name, entry in document.get("state", {}).items():
        variable = _variable(name, entry)
        if not is_of(variable.default, variable.type):
            yield Problem(
                where=f"state.{name}", message=f"the default {variable.default!r} is no {variable.type.value}"
            )


def _errors(where: str, value: Any, schema: Mapping[str, Any]) -> Iterator[Problem]:
    for error in Draft202012Validator(schema).iter_errors(value):
        yield Problem(where=_path(where, error), message=_said(error))


def _path(where: str, error: ValidationError) -> str:
    path = where
    for step in error.absolute_path:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path


def _said(error: ValidationError) -> str:
    """Return the error in words that name the value and what is allowed."""
    schema: Any = error.schema
    value: Any = error.instance
    if error.validator == "additionalProperties" and isinstance(schema, dict) and "properties" in schema:
        known = [key for key in schema["properties"] if key != "type"]
        unknown = sorted(str(key) for key in set(value) - set(schema["properties"]))
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
        return f"unknown key '{unknown[0]}'; {hint}"
    return error.message


def _node(node_id: str, entry: Mapping[str, Any]) -> Node:
    kind = Kind(entry["type"])
    own = {field.name for field in fields(_WORK[kind])}
    renamed = {_OTHER_NAMES.get(key, key): value for key, value in entry.items()}
    given = {key: _inside(key, value) for key, value in renamed.items() if key in own}
    common = {key: entry[key] for key in _NODE_KEYS if key in entry}
    retry = Retry(**entry.get("retry", {}))
    return Node(node_id=node_id, kind=kind, work=_WORK[kind](**given), retry=retry, **common)


def _inside(key: str, value: Any) -> Any:
    if key == "branches" and value and isinstance(value[0], dict):
        return tuple(Branch(**branch) for branch in value)
    return tuple(value) if isinstance(value, list) and key in ("branches", "tools", "sources", "questions") else value


def _variable(name: str, entry: Any) -> Variable:
    if isinstance(entry, dict):
        kind = Type(entry["type"])
        return Variable(type=kind, default=entry.get("default", _ZERO[kind]))
    return Variable(type=type_of(entry), default=entry)


def type_of(value: Any) -> Type:
    """Return the type of a value of JSON."""
    match value:
        case bool():
            return Type.BOOL
        case int():
            return Type.INT
        case float():
            return Type.DOUBLE
        case str():
            return Type.STRING
        case list() | tuple():
            return Type.LIST
        case dict():
            return Type.MAP
        case _:
            return Type.ANY


def is_of(value: Any, kind: Type) -> bool:
    """Whether a value of JSON is of a type; a whole number is a double too."""
    return kind is Type.ANY or type_of(value) is kind or (kind is Type.DOUBLE and type_of(value) is Type.INT)
