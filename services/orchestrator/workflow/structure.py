"""The shape of the graph: one start, ways that lead on, cycles that can be left, branches that meet again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from services.orchestrator.workflow.graph import Edge, Kind, Node, ParallelWork, StateWork, Workflow
from services.orchestrator.workflow.problems import Problem

Keep = Callable[[Edge], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What is wrong with the graph, and whether every edge leads somewhere, so that more can be said."""

    problems: tuple[Problem, ...]
    connected: bool


def structure_problems(workflow: Workflow) -> Structure:
    """Return what is wrong with the graph."""
    missing = tuple(_missing(workflow))
    return Structure(problems=missing or tuple(_problems(workflow)), connected=not missing)


def _problems(workflow: Workflow) -> Iterator[Problem]:
    starts = [node for node in workflow.nodes.values() if node.kind is Kind.START]
    if len(starts) != 1:
        yield Problem(where="nodes", message=f"there must be one node of type start, there are {len(starts)}")
    if not any(node.kind is Kind.END for node in workflow.nodes.values()):
        yield Problem(where="nodes", message="there must be a node of type end")
    if len(starts) != 1:
        return
    yield from _unreachable(workflow)
    yield from _endless(workflow)
    yield from _too_few_steps(workflow)
    for node in workflow.nodes.values():
        if isinstance(node.work, ParallelWork):
            yield from _parallel(workflow, node, node.work)


def before(workflow: Workflow) -> dict[str, frozenset[str]]:
    """Return for each node those that may have run when it begins."""
    reached = {node_id: _reach(workflow, [node_id]) for node_id in workflow.nodes}
    found: dict[str, set[str]] = {node_id: set() for node_id in workflow.nodes}
    for node_id, after in reached.items():
        for later in after:
            found[later].add(node_id)
    return {node_id: frozenset(nodes) for node_id, nodes in found.items()}


def region(workflow: Workflow, start: str, join: str) -> frozenset[str]:
    """Return the nodes of a branch: what is reached from `start` without passing `join`."""
    return frozenset({start} | _reach(workflow, [start], without=join)) - {join}


def _missing(workflow: Workflow) -> Iterator[Problem]:
    for node in workflow.nodes.values():
        targets = [edge.target for edge in node.edges()]
        if isinstance(node.work, ParallelWork):
            targets.append(node.work.join)
        for target in dict.fromkeys(targets):
            if target not in workflow.nodes:
                known = ", ".join(f"'{name}'" for name in workflow.nodes)
                yield Problem(where=f"nodes.{node.node_id}", message=f"leads to '{target}'; there is only {known}")
            elif workflow.nodes[target].kind is Kind.START:
                yield Problem(where=f"nodes.{node.node_id}", message=f"leads back to the start '{target}'")


def _reach(workflow: Workflow, starts: Collection[str], *, without: str = "", keep: Keep | None = None) -> set[str]:
    """Return what is reached from `starts` by one edge or more, never through `without`."""
    found: set[str] = set()
    waiting = deque(starts)
    while waiting:
        node = workflow.nodes[waiting.popleft()]
        for edge in node.edges():
            if edge.target in found or edge.target == without or (keep is not None and not keep(edge)):
                continue
            found.add(edge.target)
            waiting.append(edge.target)
    return found


def is_remark(workflow: Workflow, node: Node) -> bool:
    """Whether a node is a note that nothing leads to: a remark on the drawing."""
    targets = {edge.target for other in workflow.nodes.values() for edge in other.edges()}
    return node.kind is Kind.NOTE and node.node_id not in targets


def _unreachable(workflow: Workflow) -> Iterator[Problem]:
    start = workflow.start.node_id
    reached = _reach(workflow, [start]) | {start}
    for node in workflow.nodes.values():
        where = f"nodes.{node.node_id}"
        if is_remark(workflow, node):
            continue
        if node.node_id not in reached:
            yield Problem(where=where, message="nothing leads here from the start; connect it or remove it")
        elif node.kind is Kind.NOTE and not node.next:
            yield Problem(where=where, message="a note on the way needs 'next'")


def _endless(workflow: Workflow) -> Iterator[Problem]:
    """Every node must come to an end by ordinary edges, so that every cycle can be left otherwise than by failing."""
    start = workflow.start.node_id
    for node_id in sorted(_reach(workflow, [start]) | {start}):
        node = workflow.nodes[node_id]
        if node.kind is Kind.END or (node.kind is Kind.NOTE and not node.next):
            continue
        after = _reach(workflow, [node_id], keep=lambda edge: not edge.on_error)
        if any(workflow.nodes[target].kind is Kind.END for target in after):
            continue
        cycle = node_id in after
        message = "no way leads from here to an end" + (": it goes round without a way out" if cycle else "")
        yield Problem(where=f"nodes.{node_id}", message=message)


def _too_few_steps(workflow: Workflow) -> Iterator[Problem]:
    """The bound must leave room for the shortest way at least."""
    distance: dict[str, int] = {workflow.start.node_id: 1}
    waiting = deque(distance)
    while waiting:
        node_id = waiting.popleft()
        for edge in workflow.nodes[node_id].edges():
            if edge.target not in distance:
                distance[edge.target] = distance[node_id] + 1
                waiting.append(edge.target)
    ends = [n for node_id, n in distance.items() if workflow.nodes[node_id].kind is Kind.END]
    if ends and min(ends) > workflow.steps:
        yield Problem(
            where="steps", message=f"{workflow.steps} steps never reach an end; it takes {min(ends)} at least"
        )


# --- parallel branches --------------------------------------------------------------------------------------------


def _parallel(workflow: Workflow, node: Node, work: ParallelWork) -> Iterator[Problem]:
    where = f"nodes.{node.node_id}"
    if work.join in work.branches:
        yield Problem(where=where, message=f"the branch '{work.join}' is the join itself")
        return
    regions = {start: region(workflow, start, work.join) for start in work.branches}
    for start, inside in regions.items():
        yield from _branch(workflow, node, work, start, inside)
    starts = list(work.branches)
    for index, one in enumerate(starts):
        for other in starts[index + 1 :]:
            if shared := sorted(regions[one] & regions[other]):
                message = f"the branches '{one}' and '{other}' share {_listed(shared)}; let them meet at the join"
                yield Problem(where=where, message=message)
            elif written := sorted(_written(workflow, regions[one]) & _written(workflow, regions[other])):
                message = f"the branches '{one}' and '{other}' both set {_listed(written)}; use a variable for each"
                yield Problem(where=where, message=message)


def _branch(
    workflow: Workflow, node: Node, work: ParallelWork, start: str, inside: Collection[str]
) -> Iterator[Problem]:
    where = f"nodes.{node.node_id}"
    if node.node_id in inside:
        yield Problem(where=where, message=f"the branch '{start}' leads back here without passing '{work.join}'")
        return
    if ends := sorted(n for n in inside if workflow.nodes[n].kind is Kind.END):
        message = f"the branch '{start}' ends in {_listed(ends)}; it must come to the join '{work.join}'"
        yield Problem(where=where, message=message)
    for other in workflow.nodes.values():
        if other.node_id in inside or other.node_id == node.node_id:
            continue
        for edge in other.edges():
            if edge.target in inside:
                message = f"'{other.node_id}' leads to '{edge.target}' in the middle of the branch '{start}'"
                yield Problem(where=where, message=message)


def _written(workflow: Workflow, nodes: Collection[str]) -> set[str]:
    written: set[str] = set()
    for node_id in nodes:
        work = workflow.nodes[node_id].work
        if isinstance(work, StateWork):
            written |= set(work.set)
    return written


def _listed(names: Collection[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
