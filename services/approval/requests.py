"""Asking for a decision, and taking the question back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from services.approval import changes
from services.approval.domain import Approval, Gate, Kind, Question, State
from services.approval.entitlement import DECIDE, has_scope, is_service
from services.approval.errors import ApprovalConflict, NotEntitled
from services.approval.jsontext import parse_json
from services.approval.policy import Operator, listed
from services.approval.ports import Approvals
from services.approval.records import Records
from services.approval.rules import DECIDER_PREFIX, AllowRules
from services.chassis.canonical import canonical_json, digest
from services.chassis.clock import Clock
from services.chassis.errors import FieldViolation, InvalidRequest, Overloaded
from services.chassis.identity import Principal

POLICY_DECIDER = "policy"
MAX_QUESTIONS = 10
CANCEL_ATTEMPTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a caller asks for; `arguments` and `parameters` are JSON text, `timeout` None is the default."""

    approval_id: str
    kind: Kind
    run_id: str
    round: int
    call_id: str
    conversation_id: str = ""
    tool: str = ""
    arguments: bytes = b""
    parameters: bytes = b""
    reason: str = ""
    gate: Gate = Gate.ASK
    policy: str = ""
    quorum: int = 0
    group: str = ""
    four_eyes: bool = False
    agent: str = ""
    timeout: timedelta | None = None
    questions: tuple[Question, ...] = ()


class Requests:
    """Makes records. The same id asked again is the same record, whatever became of it since."""

    def __init__(
        self, approvals: Approvals, records: Records, rules: AllowRules, operator: Operator, clock: Clock
    ) -> None:
        self._approvals = approvals
        self._records = records
        self._rules = rules
        self._operator = operator
        self._clock = clock

    async def request(self, principal: Principal, asked: Asked) -> Approval:
        """Return the record, new or found; decided at once when the gate denies or an allow rule satisfies it.

        Raises InvalidRequest, and ApprovalConflict when the id stands for another call.
        """
        if is_service(principal):
            raise NotEntitled("a service asks on behalf of a user; send the identity of the run's principal")
        arguments = check(asked)
        wanted = self._pending(principal, asked, arguments)
        decided = await self._decided_at_once(principal, wanted, arguments)
        history = [changes.requested(wanted)]
        if decided is not None:
            history.append(changes.settled(decided, principal.actor))
        # Most are new, so the insert itself finds out whether the id is taken.
        if await self._approvals.add(decided or wanted, history):
            return decided or wanted
        existing = await self._records.one(principal.tenant, asked.approval_id)
        if not same_request(existing, wanted):
            raise ApprovalConflict(asked.approval_id)
        return existing

    async def cancel(self, principal: Principal, approval_id: str) -> Approval:
        """Withdraw a pending record; one already settled is returned as it is. Raises ApprovalNotFound, NotEntitled."""
        for _ in range(CANCEL_ATTEMPTS):
            current = await self._records.one(principal.tenant, approval_id)
            if current.requested_by != principal.user and not has_scope(principal, DECIDE):
                raise NotEntitled(f"approval '{approval_id}' was asked for by another user, so you cannot withdraw it")
            if current.state is not State.PENDING:
                return current
            cancelled = current.settle(State.CANCELLED, principal.user, self._clock.now())
            if await self._approvals.replace(current, cancelled, [changes.settled(cancelled, principal.actor)]):
                return cancelled
        raise Overloaded(f"approval '{approval_id}' changes too fast to be cancelled; try again", retry_after=0.1)

    def _pending(self, principal: Principal, asked: Asked, arguments: Any) -> Approval:
        now = self._clock.now()
        canonical = canonical_json(arguments) if arguments is not None else b""
        return Approval(
            tenant=principal.tenant,
            approval_id=asked.approval_id,
            kind=asked.kind,
            run_id=asked.run_id,
            round=asked.round,
            call_id=asked.call_id,
            conversation_id=asked.conversation_id,
            tool=asked.tool,
            arguments=canonical,
            arguments_digest=digest(canonical) if canonical else "",
            parameters=asked.parameters,
            reason=asked.reason,
            gate=self._floor(asked),
            policy=asked.policy,
            quorum=asked.quorum,
            group=asked.group,
            four_eyes=asked.four_eyes,
            requested_by=principal.user,
            agent=asked.agent,
            requested_at=now,
            deadline=now + self._operator.timeout(asked.tool, asked.timeout),
            questions=asked.questions,
        )

    def _floor(self, asked: Asked) -> Gate:
        """The operator's floors hold also for a caller that did not ask EvaluateGate."""
        if asked.kind is not Kind.TOOL or asked.gate in (Gate.DENY, Gate.QUORUM):
            return asked.gate
        if listed(asked.tool, self._operator.deny):
            return Gate.DENY
        if asked.four_eyes or listed(asked.tool, self._operator.always_ask):
            return Gate.ASK_ALWAYS
        return asked.gate

    async def _decided_at_once(self, principal: Principal, wanted: Approval, arguments: Any) -> Approval | None:
        if wanted.kind is not Kind.TOOL:
            return None
        if wanted.gate is Gate.DENY:
            return wanted.settle(State.DENIED, POLICY_DECIDER, wanted.requested_at)
        if wanted.gate is not Gate.ASK:
            return None
        rule = await self._rules.satisfying(principal, wanted, arguments)
        if rule is None:
            return None
        return wanted.settle(State.APPROVED, DECIDER_PREFIX + rule.rule_id, wanted.requested_at)


def same_request(one: Approval, other: Approval) -> bool:
    """Return whether two records ask for the same: the call, its arguments or questions, and the user.

    Policy, words and deadline are left out: they may be computed anew when a run asks again after a crash, and the
    record that stands keeps its own.
    """
    return _identity(one) == _identity(other)


def _identity(approval: Approval) -> tuple[object, ...]:
    return (
        approval.kind,
        approval.run_id,
        approval.round,
        approval.call_id,
        approval.tool,
        approval.arguments_digest,
        approval.questions,
        approval.requested_by,
    )


def check(asked: Asked) -> Any:
    """Return the parsed arguments (None when the kind has none), or raise InvalidRequest."""
    if asked.kind in (Kind.TOOL, Kind.CLIENT_TOOL):
        if not asked.tool:
            raise _bad("tool", "name the tool that is to run")
        if asked.gate is Gate.ALLOW:
            raise _bad("gate", "a call that is allowed needs no record")
        if asked.gate is Gate.QUORUM and asked.quorum < 1:
            raise _bad("quorum", "say how many must agree, at least 1")
        _parse("parameters_json", asked.parameters or b"{}")
        arguments = _parse("arguments_json", asked.arguments or b"{}")
        if not isinstance(arguments, dict):
            raise _bad("arguments_json", "must be a JSON object")
        return arguments
    if asked.kind is Kind.QUESTION:
        _check_questions(asked.questions)
    return _parse("arguments_json", asked.arguments) if asked.arguments else None


def _check_questions(questions: tuple[Question, ...]) -> None:
    if not 1 <= len(questions) <= MAX_QUESTIONS:
        raise _bad("questions", f"ask 1 to {MAX_QUESTIONS} questions at a time")
    if len({question.question_id for question in questions}) != len(questions):
        raise _bad("questions", "give each question an id of its own")
    for place, question in enumerate(questions):
        if question.type.is_choice and not question.options:
            raise _bad(f"questions[{place}].options", "a choice needs options")
        if not question.type.is_choice and (question.options or question.allow_other):
            raise _bad(f"questions[{place}].options", "only a choice has options")
        if len(set(question.options)) != len(question.options):
            raise _bad(f"questions[{place}].options", "the options must differ")


def _parse(field: str, text: bytes) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise _bad(field, f"must be JSON: {error}") from error


def _bad(field: str, description: str) -> InvalidRequest:
    return InvalidRequest(f"{field}: {description}", violations=[FieldViolation(field=field, description=description)])
