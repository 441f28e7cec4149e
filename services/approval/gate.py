"""Evaluating the policy for others: the orchestrator asks before each call, and when an agent is saved."""

from __future__ import annotations

from collections.abc import Sequence

from services.approval.conditions import Facts, check_condition
from services.approval.errors import PolicyInvalid
from services.approval.jsontext import parse_json
from services.approval.policy import Binding, BindingPolicy, Call, Operator, Ruling, ToolDefault, evaluate
from services.chassis.errors import FieldViolation, InvalidRequest
from services.chassis.identity import Principal


class GateKeeper:
    """Applies the policy with the operator's lists."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def evaluate(
        self,
        principal: Principal,
        tool: str,
        default: ToolDefault,
        arguments: bytes,
        bindings: Sequence[Binding],
        *,
        unattended: bool = False,
    ) -> Ruling:
        """Return how the call is treated. Allow rules are not looked at: a request for a decision does that.

        `arguments` is JSON, empty for none. Raises PolicyInvalid, and InvalidRequest for bad arguments.
        """
        try:
            value = parse_json(arguments or b"{}")
        except ValueError as error:
            problem = FieldViolation(field="arguments_json", description=f"must be JSON: {error}")
            raise InvalidRequest(f"arguments_json: {problem.description}", violations=[problem]) from error
        facts = Facts(arguments=value, principal=principal)
        call = Call(tool=tool, default=default, facts=facts, unattended=unattended)
        return evaluate(call, bindings, self._operator)

    def check(self, bindings: Sequence[Binding]) -> None:
        """Raise PolicyInvalid that names every binding which cannot serve."""
        violations = [
            FieldViolation(field=f"bindings[{place}].{field}", description=problem)
            for place, binding in enumerate(bindings)
            for field, problem in _problems(binding)
        ]
        if violations:
            told = "; ".join(f"{violation.field}: {violation.description}" for violation in violations)
            raise PolicyInvalid(f"the policy cannot serve: {told}", violations=violations)


def _problems(binding: Binding) -> list[tuple[str, str]]:
    problems: list[tuple[str, str]] = []
    try:
        check_condition(binding.when)
    except PolicyInvalid as error:
        problems.append(("when", error.message))
    if binding.policy is BindingPolicy.QUORUM and binding.quorum < 1:
        problems.append(("quorum", "say how many must agree, at least 1"))
    if "*" in binding.tool[:-1]:
        problems.append(("tool", "a star may only stand at the end"))
    return problems
