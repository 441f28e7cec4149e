"""Which names a node may read, and of what type they are."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from services.orchestrator.workflow.expressions import Reference, sample
from services.orchestrator.workflow.graph import Kind, Type, Workflow

# The user's message, the parameters, the state, the results of nodes that have run, and who it all is for.
ROOTS = ("input", "args", "state", "nodes", "user")
# What a node leaves for those after it. Every node that can fail leaves `error`, empty when it did not.
_RESULTS: dict[Kind, dict[str, Type]] = {
    Kind.AGENT: {"text": Type.STRING, "value": Type.ANY},
    Kind.TOOL: {"text": Type.STRING, "value": Type.ANY, "status": Type.STRING},
    Kind.CODE: {"text": Type.STRING, "value": Type.ANY, "status": Type.STRING},
    Kind.HTTP: {"text": Type.STRING, "value": Type.ANY, "status": Type.STRING, "code": Type.INT},
    Kind.STATE: {},
    Kind.CONDITION: {},
    Kind.APPROVAL: {"approved": Type.BOOL, "value": Type.ANY, "status": Type.STRING, "text": Type.STRING},
    Kind.QUESTION: {"answers": Type.ANY, "skipped": Type.BOOL, "text": Type.STRING},
    Kind.NOTE: {"text": Type.STRING},
}
RESULTS: Mapping[Kind, Mapping[str, Type]] = {kind: {**own, "error": Type.STRING} for kind, own in _RESULTS.items()}
_OF_SCHEMA = {
    "string": Type.STRING,
    "integer": Type.INT,
    "boolean": Type.BOOL,
    "array": Type.LIST,
    "object": Type.MAP,
}
# Two values of each type, so that both arms of a choice are seen.
_SAMPLES: dict[Type, tuple[Any, Any]] = {
    Type.STRING: ("", "a"),
    Type.INT: (0, 1),
    Type.DOUBLE: (0.5, 1.5),
    Type.BOOL: (False, True),
    Type.LIST: ([], []),
    Type.MAP: ({}, {}),
}
_OF_RESULT: dict[type, Type] = {
    bool: Type.BOOL,
    int: Type.INT,
    float: Type.DOUBLE,
    str: Type.STRING,
    list: Type.LIST,
    dict: Type.MAP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What one node can read: `before` are the nodes that may have run when it begins."""

    workflow: Workflow
    before: Collection[str]

    def problem(self, reference: Reference) -> str:
        """Return why a name cannot be read here; empty when it can."""
        root, *steps = reference
        if root not in ROOTS:
            return f"there is no '{root}'; there is {_listed(ROOTS)}"
        if root in ("state", "nodes") and steps and steps[0] is None:
            return f"'{root}[…]' is not known before it runs; name it as '{root}.NAME'"
        if root == "state" and steps and steps[0] not in self.workflow.state:
            return f"there is no 'state.{steps[0]}'; {_there_is(steps[0], self.workflow.state)}"
        if root == "args" and steps and steps[0] is not None and steps[0] not in self._parameters():
            return f"there is no 'args.{steps[0]}'; {_there_is(steps[0], self._parameters())} in 'parameters'"
        if root == "user" and steps:
            return "'user' is a text: the user's id"
        return self._node_problem(steps) if root == "nodes" and steps else ""

    def _node_problem(self, steps: list[str | None]) -> str:
        name = str(steps[0])
        node = self.workflow.nodes.get(name)
        if node is None:
            return f"there is no node '{name}'; {_there_is(name, self.workflow.nodes)}"
        if name not in self.before:
            return f"node '{name}' never runs before this one"
        results = RESULTS.get(node.kind, {})
        if len(steps) > 1 and steps[1] not in results:
            return f"a node of type {node.kind.value} has no '{steps[1]}'; {_there_is(str(steps[1]), results)}"
        return ""

    def type_of(self, reference: Reference) -> Type:
        """Return the type of a name that can be read; ANY when only the run knows it."""
        match reference:
            case ("input",) | ("user",):
                return Type.STRING
            case ("state", str(name)):
                return self.workflow.state[name].type
            case ("args", str(name)):
                return _OF_SCHEMA.get(str(self._parameters()[name].get("type")), Type.ANY)
            case ("nodes", str(name), str(field)):
                return RESULTS[self.workflow.nodes[name].kind][field]
            case _:
                return Type.ANY

    def type_problem(self, text: str, references: tuple[Reference, ...], wanted: Type) -> str:
        """Return why an expression cannot give a value of `wanted`; empty when it can, or when only the run shows it.

        It is evaluated with sample values of the types that it reads; CEL itself refuses operands that do not go
        together.
        """
        types = {reference: self.type_of(reference) for reference in references}
        if Type.ANY in types.values():
            return ""
        for which in (0, 1):
            fits, result = sample(text, _values({r: _SAMPLES[t][which] for r, t in types.items()}))
            if not fits:
                said = ", ".join(f"{'.'.join(map(str, r))} is {t.value}" for r, t in types.items())
                return f"{text!r} mixes types that do not go together ({said or 'its own values'})"
            given = _OF_RESULT.get(type(result))
            if given is not None and wanted is not Type.ANY and given is not wanted:
                return f"{text!r} gives {given.value}, not {wanted.value}"
        return ""

    def _parameters(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.workflow.parameters.get("properties", {})
        return found


def _values(samples: Mapping[Reference, Any]) -> dict[str, Any]:
    """Return nested mappings that hold each sample under its name."""
    values: dict[str, Any] = {}
    for reference, value in samples.items():
        place = values
        for step in reference[:-1]:
            place = place.setdefault(str(step), {})
        place[str(reference[-1])] = value
    return values


def _there_is(name: str | None, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name or "", list(known), n=1)
    return f"did you mean '{near[0]}'?" if near else f"there is {_listed(known)}"


def _listed(names: Collection[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
