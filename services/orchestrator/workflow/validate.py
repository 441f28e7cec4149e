"""Everything that can be known to be wrong with a workflow before it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from services.chassis.canonical import canonical_json
from services.orchestrator.checks import check_schema
from services.orchestrator.workflow.graph import Workflow
from services.orchestrator.workflow.node_checks import NodeCheck, tools_of
from services.orchestrator.workflow.problems import Problem, WorkflowInvalid
from services.orchestrator.workflow.reading import read
from services.orchestrator.workflow.scope import Scope
from services.orchestrator.workflow.structure import before, structure_problems


def validate(
    workflow_yaml: str, tools: Mapping[str, bytes] | None = None, agents: Collection[str] | None = None
) -> tuple[Problem, ...]:
    """Return what is wrong with a workflow, nothing when it may be saved.

    `tools` maps the tools there are to the JSON Schemas of their arguments, `agents` names the agents; None leaves
    them unchecked, for when they are not known yet.
    """
    try:
        workflow = read(workflow_yaml)
    except WorkflowInvalid as error:
        return error.problems
    return problems_of(workflow, tools, agents)


@lru_cache(maxsize=256)
def checked(workflow_yaml: str) -> Workflow:
    """Return the workflow, or raise WorkflowInvalid with every problem but unknown tools and agents."""
    workflow = read(workflow_yaml)
    if problems := problems_of(workflow, None, None):
        raise WorkflowInvalid(problems)
    return workflow


def problems_of(
    workflow: Workflow, tools: Mapping[str, bytes] | None, agents: Collection[str] | None
) -> tuple[Problem, ...]:
    """Return what is wrong with a workflow whose form is right."""
    structure = structure_problems(workflow)
    problems = list(structure.problems)
    if workflow.parameters and (wrong := check_schema(canonical_json(workflow.parameters))):
        problems.append(Problem(where="parameters", message=f"not a JSON Schema: {wrong}"))
    if not structure.connected:
        return tuple(problems)  # what may run before what is not known
    earlier = before(workflow)
    for node in workflow.nodes.values():
        check = NodeCheck(
            node=node,
            scope=Scope(workflow=workflow, before=earlier[node.node_id]),
            tools=tools,
            agents=agents,
        )
        problems += check.problems()
    return tuple(problems)


def unknown_tools(workflow: Workflow, tools: Mapping[str, bytes]) -> tuple[Problem, ...]:
    """Return what names or misuses a tool of the suite; those of servers (`server__tool`) are not known yet."""
    named = {name for node in workflow.nodes.values() for name in tools_of(node)}
    known = {**dict.fromkeys((name for name in named if "__" in name), b"{}"), **tools}
    return problems_of(workflow, known, None)
