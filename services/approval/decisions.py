"""Deciding: the first valid decision wins, the same one again is the same one, everyone else learns who won."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from services.approval import answers, changes
from services.approval.domain import (
    AllowRule,
    Answer,
    Approval,
    Approve,
    Change,
    ClientResult,
    ContinueWith,
    Decision,
    Deny,
    Edit,
    Gate,
    Kind,
    State,
)
from services.approval.entitlement import require_decider
from services.approval.errors import (
    ApprovalDecided,
    ApprovalExpired,
    DigestMismatch,
    WrongDecisionKind,
)
from services.approval.ports import Approvals
from services.approval.records import Records
from services.approval.rules import remembered
from services.chassis.clock import Clock, Ids
from services.chassis.errors import FieldViolation, InvalidRequest, Overloaded
from services.chassis.identity import Principal

# Each lost race means that somebody else's decision or agreement was stored, so a quorum can lose at most as often as
# it has members; the bound only keeps a defect from looping.
ATTEMPTS = 200

FITS: dict[Kind, tuple[type[Decision], ...]] = {
    Kind.TOOL: (Approve, Deny, Edit),
    Kind.QUESTION: (Answer,),
    Kind.CONTINUE: (ContinueWith,),
    Kind.CLIENT_TOOL: (ClientResult,),
}
NAMES: dict[type[Decision], str] = {
    Approve: "approve",
    Deny: "deny",
    Edit: "edit",
    Answer: "answer",
    ClientResult: "client_tool",
    ContinueWith: "continue_with",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the decider believes to decide about; empty fields are not checked."""

    arguments_digest: str = ""
    run_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The record after the decision; `now` is False when the same decision stood already."""

    approval: Approval
    now: bool


class Decisions:
    """Takes decisions of authenticated principals."""

    def __init__(self, approvals: Approvals, records: Records, clock: Clock, ids: Ids) -> None:
        self._approvals = approvals
        self._records = records
        self._clock = clock
        self._ids = ids

    async def decide(
        self, principal: Principal, approval_id: str, decision: Decision, *, comment: str = "", seen: Seen | None = None
    ) -> Decided:
        """Decide, or raise why not; nothing is written then and a pending record can still be decided.

        Raises ApprovalNotFound, NotEntitled, InvalidRequest (another run), WrongDecisionKind, ApprovalExpired,
        ApprovalDecided, DigestMismatch and AnswerInvalid, looked at in this order.
        """
        for _ in range(ATTEMPTS):
            current = await self._records.one(principal.tenant, approval_id)
            require_decider(principal, current)
            _require_fit(current, decision, seen or Seen())
            if current.state is not State.PENDING:
                return _standing(current, decision, principal.user)
            _require_digest(current, seen or Seen())
            now = self._clock.now()
            if current.lapsed(now):
                # The deadline passed since it was read; reading it again settles that.
                continue
            after = apply(current, decision, principal.user, comment, now)
            if after is current:
                return Decided(approval=current, now=False)
            rule = self._rule(after, decision, now)
            if await self._approvals.replace(current, after, _history(after, rule, principal, now), rule):
                return Decided(approval=after, now=True)
        raise Overloaded(f"approval '{approval_id}' changes too fast to be decided; try again", retry_after=0.1)

    def _rule(self, after: Approval, decision: Decision, now: datetime) -> AllowRule | None:
        if not isinstance(decision, Approve):
            return None
        return remembered(after, decision.remember, self._ids.new(), now)


def apply(current: Approval, decision: Decision, user: str, comment: str, now: datetime) -> Approval:
    """Return pending `current` after a fitting decision of an entitled user; itself when that user agreed before.

    Raises AnswerInvalid when what the decision carries does not satisfy what was asked.
    """

    def settle(state: State, change: Callable[[Approval], Approval] = lambda approval: approval) -> Approval:
        return change(replace(current, comment=comment)).settle(state, user, now)

    match decision:
        case Approve():
            if current.gate is Gate.QUORUM:
                return _agree(current, user, comment, now)
            return settle(State.APPROVED)
        case Deny():
            return settle(State.DENIED)
        case Edit():
            edited = answers.edited_arguments(current, decision.arguments)
            return settle(State.EDITED, lambda approval: replace(approval, edited_arguments=edited))
        case Answer():
            given = _answers(current, decision)
            return settle(State.ANSWERED, lambda approval: replace(approval, answer=given, skipped=decision.skipped))
        case ClientResult():
            result = answers.client_result(decision.result)
            return settle(State.ANSWERED, lambda approval: replace(approval, answer=result))
        case ContinueWith():
            message = answers.continue_input(decision.input)
            return settle(State.ANSWERED, lambda approval: replace(approval, answer=message))
    assert_never(decision)


def _agree(current: Approval, user: str, comment: str, now: datetime) -> Approval:
    if user in current.agreed:
        return current
    agreed = replace(current, agreed=(*current.agreed, user))
    if len(agreed.agreed) < current.quorum:
        return replace(agreed, version=current.version + 1)
    return replace(agreed, comment=comment).settle(State.APPROVED, user, now)


def _answers(current: Approval, decision: Answer) -> bytes:
    if decision.skipped:
        answers.skipped(current.questions)
        return b""
    return answers.answers(current.questions, decision.answers)


def _require_fit(current: Approval, decision: Decision, seen: Seen) -> None:
    if seen.run_id and seen.run_id != current.run_id:
        problem = f"approval '{current.approval_id}' belongs to run '{current.run_id}', not to '{seen.run_id}'"
        raise InvalidRequest(problem, violations=[FieldViolation(field="run_id", description=problem)])
    fitting = FITS[current.kind]
    if not isinstance(decision, fitting):
        wanted = " or ".join(NAMES[kind] for kind in fitting)
        raise WrongDecisionKind(
            f"approval '{current.approval_id}' asks for {current.kind}: decide it with {wanted}, "
            f"not with {NAMES[type(decision)]}",
            metadata={"approval_id": current.approval_id, "kind": current.kind},
        )
    if current.gate is Gate.QUORUM and isinstance(decision, Edit):
        raise WrongDecisionKind(
            f"approval '{current.approval_id}' needs the agreement of several to the arguments as they are; "
            "deny it to have it asked anew",
            metadata={"approval_id": current.approval_id, "kind": current.kind},
        )


def _require_digest(current: Approval, seen: Seen) -> None:
    if seen.arguments_digest and not hmac.compare_digest(
        seen.arguments_digest.encode(), current.arguments_digest.encode()
    ):
        raise DigestMismatch(current)


def _standing(current: Approval, decision: Decision, user: str) -> Decided:
    """The record is settled: the same decision of the same user is told again, any other is refused."""
    if current.state is State.EXPIRED:
        raise ApprovalExpired(current)
    if current.state is State.APPROVED and isinstance(decision, Approve) and user in current.agreed:
        return Decided(approval=current, now=False)
    if current.decided_by != user or current.state is State.CANCELLED:
        raise ApprovalDecided(current)
    again = apply(replace(current, state=State.PENDING), decision, user, current.comment, current.requested_at)
    same = (again.state, again.edited_arguments, again.answer, again.skipped) == (
        current.state,
        current.edited_arguments,
        current.answer,
        current.skipped,
    )
    if not same:
        raise ApprovalDecided(current)
    return Decided(approval=current, now=False)


def _history(after: Approval, rule: AllowRule | None, principal: Principal, now: datetime) -> list[Change]:
    if after.state is State.PENDING:
        return [changes.agreed(after, principal.user, now)]
    history = [changes.settled(after, principal.actor)]
    if rule is not None:
        history.append(changes.rule_created(rule, principal.user))
    return history
