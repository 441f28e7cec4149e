"""Deciding, as a pure step and who may take it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from services.approval.decisions import apply
from services.approval.domain import (
    Answer,
    Approve,
    ClientResult,
    ContinueWith,
    Deny,
    Edit,
    Gate,
    Kind,
    Question,
    QuestionType,
    State,
)
from services.approval.entitlement import is_service, may_see, require_decider
from services.approval.errors import NotEntitled
from services.chassis.identity import Principal
from tests.support.approvals import ANN, BOB, EVE, RIVAL, approval
from tests.support.clock import START

QUESTIONS = (Question(question_id="colour", text="Which?", type=QuestionType.TEXT),)


def test_approving_settles_with_who_when_and_what_was_said() -> None:
    after = apply(approval(), Approve(), "bob", "go on", START)
    assert (after.state, after.decided_by, after.decided_at, after.comment) == (State.APPROVED, "bob", START, "go on")
    assert after.version == 2


@pytest.mark.parametrize(
    ("record", "decision", "state", "carried"),
    [
        (approval(), Deny(), State.DENIED, {}),
        (approval(), Edit(arguments=b'{"to": "y"}'), State.EDITED, {"edited_arguments": b'{"to":"y"}'}),
        (
            approval(kind=Kind.QUESTION, questions=QUESTIONS),
            Answer(answers=b'{"colour": "red"}'),
            State.ANSWERED,
            {"answer": b'{"colour":"red"}'},
        ),
        (approval(kind=Kind.QUESTION, questions=QUESTIONS), Answer(skipped=True), State.ANSWERED, {"skipped": True}),
        (
            approval(kind=Kind.CLIENT_TOOL),
            ClientResult(result=b'{"parts":[]}'),
            State.ANSWERED,
            {"answer": b'{"failed":false,"parts":[]}'},
        ),
        (
            approval(kind=Kind.CONTINUE),
            ContinueWith(input=b'[{"text":"more"}]'),
            State.ANSWERED,
            {"answer": b'[{"text":"more"}]'},
        ),
        (approval(kind=Kind.CONTINUE), ContinueWith(), State.ANSWERED, {"answer": b""}),
    ],
)
def test_each_kind_of_decision_settles_in_its_own_way(
    record: Any, decision: Any, state: State, carried: dict[str, Any]
) -> None:
    after = apply(record, decision, "ann", "", START)
    assert after == replace(record, state=state, decided_by="ann", decided_at=START, version=2, **carried)


def test_a_quorum_is_reached_by_different_people_only() -> None:
    record = approval(gate=Gate.QUORUM, quorum=2)
    first = apply(record, Approve(), "ann", "", START)
    assert (first.state, first.agreed) == (State.PENDING, ("ann",))
    assert apply(first, Approve(), "ann", "", START) is first
    second = apply(first, Approve(), "bob", "fine", START)
    assert (second.state, second.agreed, second.decided_by) == (State.APPROVED, ("ann", "bob"), "bob")


def test_one_refusal_ends_a_quorum() -> None:
    record = approval(gate=Gate.QUORUM, quorum=3, agreed=("ann", "bob"))
    assert apply(record, Deny(), "carl", "", START).state is State.DENIED


OPS = Principal(tenant="acme", user="olga", groups=frozenset({"ops"}))
LEAST = Principal(tenant="acme", user="ann", groups=frozenset({"ops"}))
ORCHESTRATOR = Principal(tenant="", user="orchestrator", actor="orchestrator")


@pytest.mark.parametrize(
    ("principal", "record", "may"),
    [
        (ANN, approval(), True),
        (BOB, approval(), True),
        (EVE, approval(), False),
        (OPS, approval(), False),
        (replace(EVE, scopes=frozenset({"*"})), approval(), True),
        (replace(EVE, scopes=frozenset({"approvals:read"})), approval(), False),
        (ANN, approval(four_eyes=True), False),
        (BOB, approval(four_eyes=True), True),
        (replace(ANN, scopes=frozenset({"*"})), approval(four_eyes=True), False),
        (OPS, approval(gate=Gate.QUORUM, group="ops"), True),
        (LEAST, approval(gate=Gate.QUORUM, group="ops"), True),
        (LEAST, approval(gate=Gate.QUORUM, group="ops", four_eyes=True), False),
        (ANN, approval(gate=Gate.QUORUM, group="ops"), False),
        (BOB, approval(gate=Gate.QUORUM, group="ops"), False),
        (BOB, approval(gate=Gate.QUORUM), True),
        (EVE, approval(gate=Gate.QUORUM), False),
        (ORCHESTRATOR, approval(), False),
    ],
)
def test_who_may_decide(principal: Principal, record: Any, may: bool) -> None:
    if may:
        require_decider(principal, record)
    else:
        with pytest.raises(NotEntitled):
            require_decider(principal, record)


@pytest.mark.parametrize(
    ("principal", "record", "may"),
    [
        (ANN, approval(), True),
        (BOB, approval(), True),
        (EVE, approval(), False),
        (replace(EVE, scopes=frozenset({"approvals:read"})), approval(), True),
        (RIVAL, approval(), False),
        (OPS, approval(gate=Gate.QUORUM, group="ops"), True),
        (OPS, approval(), False),
        (ORCHESTRATOR, approval(), True),
        (replace(ORCHESTRATOR, actor=""), approval(), False),
        (replace(ORCHESTRATOR, tenant="rival"), approval(), False),
    ],
)
def test_who_may_see(principal: Principal, record: Any, may: bool) -> None:
    assert may_see(principal, record) is may


def test_a_user_is_never_taken_for_a_service() -> None:
    assert not is_service(replace(ANN, actor="orchestrator"))
