"""The way of a request through the suite as a mermaid flowchart, made from the code's own lists."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator

from services.gateway import projections
from services.orchestrator.domain.agent import AgentType
from services.orchestrator.domain.events import PauseKind, ToolStatus
from services.orchestrator.domain.run import RunState
from services.orchestrator.routing.decide import Choice
from services.orchestrator.workflow.draw import quoted
from services.orchestrator.workflow.graph import Kind

# Modules of projections that are no wire of their own but parts of one.
_PARTS = frozenset({"progress", "response_items", "response_state", "response_writer", "sources"})
# What the gate asks of a call, in order, and what it is told when the answer is no.
GATE: tuple[tuple[str, tuple[ToolStatus, ...]], ...] = (
    ("known", (ToolStatus.UNKNOWN_TOOL,)),
    ("arguments valid", (ToolStatus.INVALID,)),
    ("not a duplicate", (ToolStatus.DUPLICATE,)),
    ("within budget", (ToolStatus.OVER_BUDGET,)),
    ("allowed, or approved", (ToolStatus.DENIED, ToolStatus.EXPIRED, ToolStatus.CANCELLED)),
    ("executed", (ToolStatus.COMPLETED, ToolStatus.FAILED, ToolStatus.OUTCOME_UNKNOWN)),
)
_STRATEGIES = {
    AgentType.CLASSIC: "fetches documents, then asks the model",
    AgentType.AGENTIC: "lets the model search",
    AgentType.RESEARCH: "clarifies, plans, works on steps side by side, brings them together",
    AgentType.WORKFLOW: "walks a graph of nodes, agents among them",
}
_ROUTES = {
    Choice.SMALL_TALK: "small talk, without tools",
    Choice.OFF_TOPIC: "a fixed text, no agent",
}


def suite_chart() -> str:
    """Return the flowchart."""
    return "\n".join(["flowchart TD", *(f"    {line}" for line in _lines())]) + "\n"


def _lines() -> Iterator[str]:
    wires = sorted({module.name for module in pkgutil.iter_modules(projections.__path__)} - _PARTS)
    yield _node("client", "client", f"gateway: {', '.join(wires)}")
    yield _node("start", "StartRun", "orchestrator: agent, model, tools, quota, then admitted")
    yield _node("journal", "journal", "every event numbered before anybody sees it", "[(", ")]")
    yield "client --> start"
    yield "start --> journal"
    yield "journal -->|events| client"
    yield from _routing()
    yield from _agents()
    yield from _gate()
    yield from _ends()


def _routing() -> Iterator[str]:
    yield _node("router", "router", "if labels are configured", "{", "}")
    yield "start --> router"
    for choice, what in _ROUTES.items():
        yield _node(choice.value, choice.value.replace("_", " "), what)
        yield f"router -->|{choice.value.replace('_', ' ')}| {choice.value}"
        yield f"{choice.value} --> answered"
    others = " or ".join(choice.value or "no decision" for choice in Choice if choice not in _ROUTES)
    yield _node("agent", "agent", "by its type", "{", "}")
    yield f"router -->|{others}| agent"


def _agents() -> Iterator[str]:
    yield _node("loop", "loop", "one model call a round: text, calls, or both")
    for kind in AgentType:
        name = kind.name.lower()
        yield _node(name, name, _STRATEGIES[kind])
        yield f"agent --> {name}"
        yield f"{name} --> loop"
    yield f"{AgentType.WORKFLOW.name.lower()} -->|{quoted(', '.join(_calling()))}| gate0"
    yield "loop -->|calls| gate0"
    yield "loop -->|text| answered"


def _calling() -> list[str]:
    """Return the nodes of a workflow that call tools without a model."""
    return [kind.value for kind in (Kind.TOOL, Kind.CODE, Kind.HTTP, Kind.APPROVAL, Kind.QUESTION)]


def _gate() -> Iterator[str]:
    for place, (question, statuses) in enumerate(GATE):
        told = ", ".join(status.name.lower() for status in statuses)
        yield _node(f"gate{place}", question, f"else {told}" if place < len(GATE) - 1 else told)
        if place:
            yield f"gate{place - 1} --> gate{place}"
    kinds = ", ".join(kind.name.lower().replace("_", " ") for kind in PauseKind)
    yield _node("paused", "paused", f"waits for {kinds}", "[/", "/]")
    yield f"gate{len(GATE) - 2} -->|must be asked| paused"
    yield f"paused -->|decision or expiry, on any replica| gate{len(GATE) - 2}"
    yield f"gate{len(GATE) - 1} -->|results, in the order of the calls| loop"


def _ends() -> Iterator[str]:
    ends = ", ".join(state.name.lower() for state in RunState if state.is_terminal)
    yield _node("answered", "one terminal event", ends, "([", "])")
    yield "answered --> journal"


def _node(node_id: str, title: str, about: str, opening: str = "[", closing: str = "]") -> str:
    return f'{node_id}{opening}"{quoted(title)}<br/>{quoted(about)}"{closing}'
