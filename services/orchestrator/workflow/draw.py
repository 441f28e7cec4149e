"""A workflow as a mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator

from services.orchestrator.workflow.graph import (
    AgentWork,
    EndWork,
    HttpWork,
    Kind,
    Node,
    NoteWork,
    ParallelWork,
    StateWork,
    ToolWork,
    Workflow,
)

LABEL_CHARACTERS = 80
_SHAPES: dict[Kind, tuple[str, str]] = {
    Kind.START: ("([", "])"),
    Kind.AGENT: ("[", "]"),
    Kind.TOOL: ("[[", "]]"),
    Kind.CODE: ("[[", "]]"),
    Kind.HTTP: ("[[", "]]"),
    Kind.STATE: ("[(", ")]"),
    Kind.CONDITION: ("{", "}"),
    Kind.PARALLEL: ("{{", "}}"),
    Kind.APPROVAL: ("[/", "/]"),
    Kind.QUESTION: ("[/", "/]"),
    Kind.NOTE: (">", "]"),
    Kind.END: ("([", "])"),
}


def draw(workflow: Workflow) -> str:
    """Return the flowchart; nodes and edges stand in the order in which they are written."""
    return "\n".join(["flowchart TD", *(f"    {line}" for line in _lines(workflow))]) + "\n"


def _lines(workflow: Workflow) -> Iterator[str]:
    for node in workflow.nodes.values():
        opening, closing = _SHAPES[node.kind]
        yield f'{_id(node.node_id)}{opening}"{_label(node)}"{closing}'
    for node in workflow.nodes.values():
        for edge in node.edges():
            arrow = "-.->" if edge.on_error else "-->"
            label = f'|"{quoted(edge.label)}"|' if edge.label else ""
            yield f"{_id(node.node_id)} {arrow}{label} {_id(edge.target)}"


def _id(node_id: str) -> str:
    # "end" and other words of mermaid's would break the chart.
    return f"n_{node_id}"


def _label(node: Node) -> str:
    about = _about(node)
    second = f"{node.kind.value}: {about}" if about else node.kind.value
    named = node.label if node.label != node.kind.value else ""
    return "<br/>".join(quoted(part) for part in (named, second) if part)


def _about(node: Node) -> str:
    """Return what a node works with, in a few words."""
    match node.work:
        case AgentWork(agent=agent, tools=tools):
            return agent or ", ".join(tools)
        case ToolWork(tool=tool):
            return tool
        case HttpWork(method=method, url=url):
            return f"{method} {url}"
        case StateWork(set=variables):
            return ", ".join(variables)
        case ParallelWork(join=join):
            return f"until {join}"
        case NoteWork(text=text):
            return text
        case EndWork(fail=fail):
            return "failed" if fail else ""
        case _:
            return ""


def quoted(text: str) -> str:
    """Return `text` as it may stand between double quotes in mermaid, cut to a readable length."""
    line = " ".join(text.split())
    line = line if len(line) <= LABEL_CHARACTERS else line[: LABEL_CHARACTERS - 1] + "…"
    for sign, code in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("`", "#96;")):
        line = line.replace(sign, code)
    return line
