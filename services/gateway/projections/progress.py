"""A research run's plan and steps in words, for wires that have no event of their own for them."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.orchestrator.v1 import events_pb2 as pb


def titles(plan: pb.PlanMade) -> dict[str, str]:
    """Return the titles of the planned steps by id."""
    return {step.step_id: step.title for step in plan.steps}


def plan_text(plan: pb.PlanMade) -> str:
    """Return the plan as lines."""
    return "".join(["Plan:\n", *(f"{number}. {step.title}\n" for number, step in enumerate(plan.steps, start=1)), "\n"])


def step_text(planned: Mapping[str, str], finished: pb.StepFinished) -> str:
    """Return one line on a step that ended; nothing for one that was not planned, such as a workflow's node."""
    title = planned.get(finished.step_id, "")
    return f"{'Failed' if finished.failed else 'Done'}: {title}\n" if title else ""
