"""What is wrong with a workflow, and how that is said."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from services.chassis.errors import FieldViolation, ServiceError


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is wrong: where (a path such as `nodes.check.branches[0].when`), and what to do about it."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class WorkflowInvalid(ServiceError):
    """A workflow cannot be saved; every problem is a violation."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "WORKFLOW_INVALID"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(
            "the workflow is not valid: " + "; ".join(map(str, problems)),
            violations=[FieldViolation(field=p.where or "workflow_yaml", description=p.message) for p in problems],
        )
        self.problems = problems
