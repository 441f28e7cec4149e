"""Where a run of a workflow stands: saved with every checkpoint, as canonical JSON with a version of its own."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.workflow import expressions, templates
from services.orchestrator.workflow.expressions import Reference
from services.orchestrator.workflow.graph import TEMPLATE_FIELDS, VALUE_FIELDS, ConditionWork, Node, StateWork, Workflow
from services.orchestrator.workflow.values import formulas

VERSION = 1
MAIN = "main"


@dataclass(slots=True, kw_only=True)
class Thread:
    """One walker through the graph: the run's own, or that of a parallel branch.

    It stands at a node; `entered` says that its visit there was counted and told. `worked` are the seconds of the
    current attempt, without people's time. A `forked` one waits until its branches have come to `join`. `tools` are
    those that an agent was offered when its node began.
    """

    at: str
    parent: str = ""
    join: str = ""
    entered: bool = False
    visit: int = 0
    attempt: int = 1
    worked: float = 0.0
    forked: bool = False
    tools: list[str] = field(default_factory=list)

    def move(self, target: str) -> None:
        """Leave the node for another."""
        self.at, self.entered, self.attempt, self.worked, self.forked = target, False, 1, 0.0, False
        self.tools = []


@dataclass(slots=True, kw_only=True)
class Position:
    """All that a run of a workflow has come to. `last_text` is what the last node with a text gave."""

    input: str
    args: dict[str, Any]
    state: dict[str, Any]
    threads: dict[str, Thread]
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    visits: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    last_text: str = ""

    @classmethod
    def begin(cls, workflow: Workflow, text: str, args: Mapping[str, Any]) -> Position:
        """Return the position before the first node."""
        return cls(
            input=text,
            args=dict(args),
            state={name: copy.deepcopy(variable.default) for name, variable in workflow.state.items()},
            threads={MAIN: Thread(at=workflow.start.node_id)},
        )

    def encode(self) -> bytes:
        """Return it as canonical JSON."""
        return canonical_json({"version": VERSION, **asdict(self)})

    @classmethod
    def decode(cls, saved: bytes) -> Position:
        """Return what `encode` wrote."""
        fields = json.loads(saved)
        if (version := fields.pop("version")) != VERSION:
            raise ValueError(f"the workflow's position has version {version}; this reads {VERSION}")
        threads = {key: Thread(**thread) for key, thread in fields.pop("threads").items()}
        return cls(threads=threads, **fields)

    def variables(self, user: str) -> dict[str, Any]:
        """Return what expressions and templates see."""
        return {"input": self.input, "args": self.args, "state": self.state, "nodes": self.results, "user": user}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """Which results of nodes are read anywhere in a workflow: the others need not be kept."""

    fields: Collection[Reference]

    def kept(self, node_id: str, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of a node's results that something may read later."""
        if ("nodes",) in self.fields or ("nodes", node_id) in self.fields:
            return dict(results)
        return {name: value for name, value in results.items() if ("nodes", node_id, name) in self.fields}


def reads_of(workflow: Workflow) -> Reads:
    """Return what the nodes of a checked workflow read."""
    found = {chain[:3] for node in workflow.nodes.values() for chain in _references(node)}
    return Reads(fields=frozenset(chain if None not in chain else chain[: chain.index(None)] for chain in found))


def _references(node: Node) -> list[Reference]:
    work = node.work
    found: list[Reference] = []
    for name in TEMPLATE_FIELDS.get(type(work), ()):
        found += templates.references(getattr(work, name))
    for name in VALUE_FIELDS.get(type(work), ()):
        for formula in formulas(getattr(work, name), name):
            reader = expressions.references if formula.is_cel else templates.references
            found += reader(formula.text)
    match work:
        case StateWork():
            for value in work.set.values():
                found += expressions.references(value) if isinstance(value, str) else ()
        case ConditionWork():
            for branch in work.branches:
                found += expressions.references(branch.when)
        case _:
            pass
    return found
