"""What comes of a visit to a node, and how a workflow fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from services.chassis.errors import ServiceError
from services.orchestrator.guardrails.framing import bare
from services.orchestrator.leg import Leg
from services.orchestrator.workflow.graph import Node, Workflow
from services.orchestrator.workflow.position import Position, Thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One visit to a node: whose leg it belongs to, and under which name its events and its branch stand."""

    leg: Leg
    workflow: Workflow
    node: Node
    thread: Thread
    position: Position

    @property
    def name(self) -> str:
        """Name of the step, unique in its workflow: the node's id, with a count from the second visit on."""
        visit = self.thread.visit
        return self.node.node_id if visit == 1 else f"{self.node.node_id}-{visit}"

    @property
    def path(self) -> str:
        """Id of the step in the whole run."""
        return f"{self.leg.step_id}.{self.name}" if self.leg.step_id else self.name

    @property
    def variables(self) -> Mapping[str, Any]:
        """What expressions and templates see: texts as they are, without a frame around a stranger's words."""
        seen = self.position.variables(self.leg.spec.principal.user)
        results = {node_id: _bare(fields) for node_id, fields in self.position.results.items()}
        return {**seen, "nodes": results}

    @property
    def prompt_variables(self) -> Mapping[str, Any]:
        """What prompts see: the words of outside tools stand in frames, as every model reads them."""
        return self.position.variables(self.leg.spec.principal.user)


def _bare(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: bare(value) if name == "text" else value for name, value in fields.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Went:
    """The node is done: what it leaves, where it leads, and that in a few words for people."""

    target: str
    results: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """The node has begun its branches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """The node waits for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is at its end, with this text, and a value as canonical JSON when the end has one."""

    text: str
    value_json: bytes = b""


Outcome = Went | Forked | Paused | Ended


class NodeFailed(Exception):
    """The node did not succeed; `again` says that another try may."""

    def __init__(self, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.again = again


class WorkflowNodeFailed(ServiceError):
    """The run ends because of a node."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "WORKFLOW_NODE_FAILED"

    def __init__(self, node: Node, message: str) -> None:
        title = f" ({node.title})" if node.title else ""
        super().__init__(f"node '{node.node_id}'{title} failed: {message}", metadata={"node": node.node_id})


class StepLimitReached(ServiceError):
    """The workflow went round too often."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "WORKFLOW_STEP_LIMIT"

    def __init__(self, steps: int, node: Node) -> None:
        super().__init__(
            f"the workflow entered {steps} nodes, which is its limit, and stands before node '{node.node_id}'; "
            "raise 'steps' or give its cycle a way out",
            metadata={"node": node.node_id, "steps": str(steps)},
        )


class OutputMisses(ServiceError):
    """What the workflow ended with is not of the form that the run asked for."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "OUTPUT_INVALID"
