"""Requests, decisions, expiry and rules on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from services.approval.adapters.database import Database
from services.approval.adapters.tables import approvals
from services.approval.decisions import Decisions, Seen
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
    RuleScope,
    State,
)
from services.approval.errors import (
    AnswerInvalid,
    ApprovalConflict,
    ApprovalDecided,
    ApprovalExpired,
    ApprovalNotFound,
    DigestMismatch,
    NotEntitled,
    PolicyInvalid,
    RuleNotFound,
    WrongDecisionKind,
)
from services.approval.policy import Operator
from services.approval.ports import Waiting
from services.approval.records import Query, Records
from services.chassis.errors import InvalidRequest
from services.chassis.identity import Principal
from tests.support.approvals import ANN, BOB, EVE, RIVAL, Desk, asked, desk_over, open_desk, prepared_url
from tests.support.clock import START, FakeClock, SequentialIds

QUESTION = Question(question_id="colour", text="Which?", type=QuestionType.TEXT, required=True)


@pytest.fixture(params=["sqlite", "postgres"])
async def url(request: pytest.FixtureRequest) -> str:
    return await prepared_url(request)


@pytest.fixture
async def desk(url: str) -> AsyncIterator[Desk]:
    async with open_desk(url) as opened:
        yield opened


async def state_of(desk: Desk, approval_id: str) -> State:
    return (await desk.records.one("acme", approval_id)).state


async def test_a_request_stands_pending_with_a_digest_and_a_deadline(desk: Desk) -> None:
    record = await desk.requests.request(ANN, asked(arguments=b'{"b":1,\n "a":"\xc3\xa9"}'))
    assert record.state is State.PENDING
    assert record.arguments == '{"a":"é","b":1}'.encode()
    assert len(record.arguments_digest) == 64
    assert record.deadline == START + timedelta(minutes=2)
    assert record.requested_by == "ann"
    assert await desk.records.one("acme", "a1") == record


async def test_asking_twice_is_asking_once(desk: Desk) -> None:
    first = await desk.requests.request(ANN, asked())
    desk.clock.advance(5)
    assert await desk.requests.request(ANN, asked(arguments=b'{ "to":"x" }', policy="said anew")) == first


async def test_asking_again_after_the_decision_gives_the_decision(desk: Desk) -> None:
    await desk.requests.request(ANN, asked())
    await desk.decisions.decide(BOB, "a1", Deny(), comment="not now")
    assert (await desk.requests.request(ANN, asked())).state is State.DENIED


@pytest.mark.parametrize("change", [{"arguments": b'{"to":"y"}'}, {"tool": "other"}, {"run_id": "run2"}, {"round": 2}])
async def test_the_same_id_for_another_call_is_refused(desk: Desk, change: dict[str, Any]) -> None:
    await desk.requests.request(ANN, asked())
    with pytest.raises(ApprovalConflict):
        await desk.requests.request(ANN, asked(**change))


async def test_the_same_id_of_another_user_is_refused(desk: Desk) -> None:
    await desk.requests.request(ANN, asked())
    with pytest.raises(ApprovalConflict):
        await desk.requests.request(EVE, asked())


async def test_tenants_never_meet(desk: Desk) -> None:
    await desk.requests.request(ANN, asked())
    with pytest.raises(ApprovalNotFound):
        await desk.decisions.decide(RIVAL, "a1", Approve())
    with pytest.raises(ApprovalNotFound):
        await desk.requests.cancel(RIVAL, "a1")
    assert await desk.records.many(RIVAL, ["a1"]) == []
    assert await desk.records.page(RIVAL, Query(), None, 10) == []
    theirs = await desk.requests.request(RIVAL, asked(arguments=b'{"to":"z"}'))
    await desk.decisions.decide(RIVAL, "a1", Approve())
    assert theirs.tenant == "rival"
    assert await state_of(desk, "a1") is State.PENDING


@pytest.mark.parametrize(
    "fields",
    [
        {"tool": ""},
        {"arguments": b"[]"},
        {"arguments": b"{"},
        {"arguments": b'{"n":1e999}'},
        {"parameters": b"{"},
        {"gate": Gate.ALLOW},
        {"gate": Gate.QUORUM, "quorum": 0},
        {"kind": Kind.QUESTION},
        {"kind": Kind.QUESTION, "questions": (QUESTION,) * 11},
        {"kind": Kind.QUESTION, "questions": (QUESTION, QUESTION)},
        {
            "kind": Kind.QUESTION,
            "questions": (Question(question_id="q", text="?", type=QuestionType.SINGLE_CHOICE),),
        },
        {
            "kind": Kind.QUESTION,
            "questions": (Question(question_id="q", text="?", type=QuestionType.TEXT, options=("a",)),),
        },
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(desk: Desk, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        await desk.requests.request(ANN, asked(**fields))
    assert await desk.records.many(ANN, ["a1"]) == []


async def test_the_same_decision_twice_is_one_decision(desk: Desk) -> None:
    await desk.requests.request(ANN, asked())
    first = await desk.decisions.decide(BOB, "a1", Approve(remember=RuleScope.ALWAYS), comment="yes")
    again = await desk.decisions.decide(BOB, "a1", Approve(remember=RuleScope.ALWAYS), comment="yes")
    assert (first.now, again.now) == (True, False)
    assert again.approval == first.approval
    assert len(await desk.rules.page(ANN, None, 10)) == 1


async def test_another_decision_of_the_same_person_is_refused(desk: Desk) -> None:
    await desk.requests.request(ANN, asked())
    await desk.decisions.decide(BOB, "a1", Edit(arguments=b'{"to":"y"}'))
    for other in (Approve(), Deny(), Edit(arguments=b'{"to":"z"}')):
        with pytest.raises(ApprovalDecided):
            await desk.decisions.decide(BOB, "a1", other)
    assert not (await desk.decisions.decide(BOB, "a1", Edit(arguments=b'{ "to":"y" }'))).now


async def test_the_second_of_two_people_learns_who_won(desk: Desk) -> None:
    await desk.requests.request(ANN, asked())
    await desk.decisions.decide(BOB, "a1", Deny())
    with pytest.raises(ApprovalDecided) as caught:
        await desk.decisions.decide(ANN, "a1", Approve())
    assert caught.value.metadata == {"approval_id": "a1", "state": "denied", "decided_by": "bob"}
    with pytest.raises(ApprovalDecided):
        await desk.decisions.decide(ANN, "a1", Deny())


async def test_a_user_without_the_right_cannot_decide_and_it_can_still_be_decided(desk: Desk) -> None:
    await desk.requests.request(ANN, asked())
    with pytest.raises(NotEntitled):
        await desk.decisions.decide(EVE, "a1", Approve())
    assert (await desk.decisions.decide(ANN, "a1", Approve())).now


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Kind.TOOL, ClientResult(result=b'{"parts":[]}')),
        (Kind.TOOL, Answer(skipped=True)),
        (Kind.TOOL, ContinueWith()),
        (Kind.CLIENT_TOOL, Approve()),
        (Kind.CLIENT_TOOL, Edit(arguments=b"{}")),
        (Kind.QUESTION, Approve()),
        (Kind.QUESTION, ContinueWith()),
        (Kind.CONTINUE, Answer(skipped=True)),
        (Kind.CONTINUE, Deny()),
    ],
)
async def test_a_decision_of_the_wrong_kind_is_refused_and_nothing_changes(desk: Desk, kind: Kind, wrong: Any) -> None:
    await desk.requests.request(ANN, asked(kind=kind, questions=(QUESTION,) if kind is Kind.QUESTION else ()))
    with pytest.raises(WrongDecisionKind):
        await desk.decisions.decide(BOB, "a1", wrong)
    assert await state_of(desk, "a1") is State.PENDING


async def test_unknown_ids_other_runs_and_other_digests_are_precise_errors_and_leave_it_pending(desk: Desk) -> None:
    record = await desk.requests.request(ANN, asked())
    with pytest.raises(ApprovalNotFound, match="a2"):
        await desk.decisions.decide(BOB, "a2", Approve())
    with pytest.raises(InvalidRequest, match="belongs to run 'run1'"):
        await desk.decisions.decide(BOB, "a1", Approve(), seen=Seen(run_id="run9"))
    with pytest.raises(DigestMismatch):
        await desk.decisions.decide(BOB, "a1", Approve(), seen=Seen(arguments_digest="0" * 64))
    with pytest.raises(AnswerInvalid):
        await desk.decisions.decide(BOB, "a1", Edit(arguments=b'{"copies":1}'))
    seen = Seen(arguments_digest=record.arguments_digest, run_id="run1")
    assert (await desk.decisions.decide(BOB, "a1", Approve(), seen=seen)).now


async def test_two_outstanding_get_each_its_own_decision_in_any_order(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1"))
    await desk.requests.request(ANN, asked("a2", timeout=timedelta(hours=1)))
    await desk.decisions.decide(ANN, "a2", Deny())
    await desk.decisions.decide(ANN, "a1", Approve())
    assert await state_of(desk, "a1") is State.APPROVED
    assert await state_of(desk, "a2") is State.DENIED


async def test_one_that_times_out_leaves_the_other_alive(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1"))
    await desk.requests.request(ANN, asked("a2", timeout=timedelta(days=3)))
    desk.clock.advance(120)
    assert await state_of(desk, "a1") is State.EXPIRED
    assert (await desk.decisions.decide(ANN, "a2", Approve())).now


async def test_an_expired_record_says_so_before_any_sweep_and_refuses_late_decisions(desk: Desk) -> None:
    await desk.requests.request(ANN, asked())
    desk.clock.advance(119.999)
    assert await state_of(desk, "a1") is State.PENDING
    desk.clock.advance(0.001)
    with pytest.raises(ApprovalExpired):
        await desk.decisions.decide(BOB, "a1", Approve())
    [record] = await desk.records.many(ANN, ["a1"])
    assert (record.state, record.decided_by, record.decided_at) == (State.EXPIRED, "", record.deadline)


async def test_an_expiry_once_told_stands_when_the_clock_jumps_back(desk: Desk) -> None:
    await desk.requests.request(ANN, asked())
    desk.clock.set_wall(START + timedelta(hours=1))
    assert await state_of(desk, "a1") is State.EXPIRED
    desk.clock.set_wall(START)
    assert await state_of(desk, "a1") is State.EXPIRED
    with pytest.raises(ApprovalExpired):
        await desk.decisions.decide(BOB, "a1", Approve())


async def test_an_expiry_is_told_only_once_it_stands_also_while_another_holds_the_record(desk: Desk) -> None:
    """Passing over a locked record would tell a lapsed one as pending, and take a decision after the deadline."""
    await desk.requests.request(ANN, asked())
    async with Database(desk.engine).write() as connection:
        await connection.execute(approvals.update().values(version=approvals.c.version))
        desk.clock.advance(120)
        waiting = asyncio.create_task(desk.decisions.decide(BOB, "a1", Approve()))
        done, _ = await asyncio.wait({waiting}, timeout=0.3)
        assert not done
    with pytest.raises(ApprovalExpired):
        await waiting


async def test_a_decision_that_is_read_in_time_but_made_too_late_is_refused(desk: Desk) -> None:
    class Late(FakeClock):
        """Lets the deadline pass between reading and deciding."""

        def now(self) -> datetime:
            self.advance(70)
            return super().now()

    await desk.requests.request(ANN, asked())
    late = Late()
    decisions = Decisions(desk.approvals, Records(desk.approvals, late), late, SequentialIds())
    with pytest.raises(ApprovalExpired):
        await decisions.decide(BOB, "a1", Approve())


async def test_a_sweep_settles_what_has_lapsed_and_nothing_else(desk: Desk) -> None:
    for number in range(5):
        await desk.requests.request(ANN, asked(f"a{number}", timeout=timedelta(seconds=10 + number)))
    desk.clock.advance(12)
    assert await desk.records.sweep() == 3
    assert await desk.records.sweep() == 0
    # The two that wait were requested at the same moment, twelve seconds ago.
    assert await desk.approvals.waiting() == Waiting(count=2, since=desk.clock.now() - timedelta(seconds=12))
    desk.clock.advance(10)
    assert await desk.records.sweep() == 2
    assert await desk.approvals.waiting() == Waiting(count=0, since=None)


async def test_a_cancelled_record_stays_cancelled_and_a_decided_one_decided(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1"))
    await desk.requests.request(ANN, asked("a2"))
    with pytest.raises(NotEntitled):
        await desk.requests.cancel(EVE, "a1")
    assert (await desk.requests.cancel(ANN, "a1")).state is State.CANCELLED
    assert (await desk.requests.cancel(ANN, "a1")).state is State.CANCELLED
    with pytest.raises(ApprovalDecided):
        await desk.decisions.decide(BOB, "a1", Approve())
    await desk.decisions.decide(BOB, "a2", Approve())
    assert (await desk.requests.cancel(ANN, "a2")).state is State.APPROVED


async def test_a_denied_gate_is_a_record_that_is_denied_at_once(desk: Desk) -> None:
    record = await desk.requests.request(ANN, asked(gate=Gate.DENY, policy="never"))
    assert (record.state, record.decided_by) == (State.DENIED, "policy")


@pytest.mark.parametrize(
    ("operator", "gate"),
    [(Operator(deny=("send_*",)), Gate.DENY), (Operator(always_ask=("send_mail",)), Gate.ASK_ALWAYS)],
)
async def test_the_operators_floors_hold_for_callers_that_did_not_ask_for_the_gate(
    url: str, operator: Operator, gate: Gate
) -> None:
    async with open_desk(url, operator) as desk:
        await desk.rules.create(ANN, "send_mail")
        record = await desk.requests.request(ANN, asked())
        assert record.gate is gate
        assert not record.decided_by.startswith("rule:")


async def test_an_answer_is_kept_and_a_skip_is_known(desk: Desk) -> None:
    optional = Question(question_id="note", text="?", type=QuestionType.TEXT)
    await desk.requests.request(ANN, asked("a1", kind=Kind.QUESTION, questions=(QUESTION, optional)))
    await desk.requests.request(ANN, asked("a2", kind=Kind.QUESTION, questions=(optional,)))
    with pytest.raises(AnswerInvalid):
        await desk.decisions.decide(ANN, "a1", Answer(answers=b'{"note":"x"}'))
    answered = await desk.decisions.decide(ANN, "a1", Answer(answers=b'{"colour":"red"}'))
    assert json.loads(answered.approval.answer) == {"colour": "red"}
    assert answered.approval.questions == (QUESTION, optional)
    assert (await desk.decisions.decide(ANN, "a2", Answer(skipped=True))).approval.skipped


async def test_a_quorum_counts_members_once_and_survives_in_the_record(desk: Desk) -> None:
    members = [Principal(tenant="acme", user=f"op{n}", groups=frozenset({"ops"})) for n in range(3)]
    await desk.requests.request(ANN, asked(gate=Gate.QUORUM, quorum=2, group="ops"))
    with pytest.raises(NotEntitled):
        await desk.decisions.decide(BOB, "a1", Approve())
    assert (await desk.decisions.decide(members[0], "a1", Approve())).approval.state is State.PENDING
    assert not (await desk.decisions.decide(members[0], "a1", Approve())).now
    with pytest.raises(WrongDecisionKind):
        await desk.decisions.decide(members[1], "a1", Edit(arguments=b'{"to":"y"}'))
    decided = await desk.decisions.decide(members[2], "a1", Approve())
    assert (decided.approval.state, decided.approval.agreed) == (State.APPROVED, ("op0", "op2"))
    assert not (await desk.decisions.decide(members[0], "a1", Approve())).now
    with pytest.raises(ApprovalDecided):
        await desk.decisions.decide(members[1], "a1", Approve())


async def test_four_eyes_need_somebody_else(desk: Desk) -> None:
    await desk.requests.request(ANN, asked(four_eyes=True))
    with pytest.raises(NotEntitled):
        await desk.decisions.decide(ANN, "a1", Approve())
    assert (await desk.decisions.decide(BOB, "a1", Approve())).now


async def test_approving_always_lets_the_next_call_through_and_says_by_which_rule(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1"))
    await desk.decisions.decide(BOB, "a1", Approve(remember=RuleScope.ALWAYS))
    [rule] = await desk.rules.page(ANN, None, 10)
    record = await desk.requests.request(ANN, asked("a2", arguments=b'{"to":"other"}'))
    assert (record.state, record.decided_by) == (State.APPROVED, f"rule:{rule.rule_id}")
    assert await desk.rules.page(BOB, None, 10) == []
    assert (await desk.requests.request(EVE, asked("a3"))).state is State.PENDING


async def test_approving_for_the_conversation_reaches_no_further(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1", conversation_id="c1"))
    await desk.decisions.decide(ANN, "a1", Approve(remember=RuleScope.CONVERSATION))
    assert (await desk.requests.request(ANN, asked("a2", conversation_id="c1"))).state is State.APPROVED
    assert (await desk.requests.request(ANN, asked("a3", conversation_id="c2"))).state is State.PENDING
    assert (await desk.requests.request(ANN, asked("a4"))).state is State.PENDING


async def test_remembering_is_refused_where_no_rule_could_serve_and_the_record_stays_pending(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1", gate=Gate.ASK_ALWAYS))
    await desk.requests.request(ANN, asked("a2"))
    with pytest.raises(InvalidRequest):
        await desk.decisions.decide(ANN, "a1", Approve(remember=RuleScope.ALWAYS))
    with pytest.raises(InvalidRequest):
        await desk.decisions.decide(ANN, "a2", Approve(remember=RuleScope.CONVERSATION))
    assert await state_of(desk, "a1") is State.PENDING


@pytest.mark.parametrize(
    "fields",
    [
        {"gate": Gate.ASK_ALWAYS},
        {"gate": Gate.QUORUM, "quorum": 1},
        {"four_eyes": True},
        {"kind": Kind.CLIENT_TOOL},
    ],
)
async def test_a_rule_satisfies_nothing_stricter_than_ask(desk: Desk, fields: dict[str, Any]) -> None:
    await desk.rules.create(ANN, "send_mail")
    assert (await desk.requests.request(ANN, asked(**fields))).state is State.PENDING


async def test_a_rule_serves_its_tool_its_arguments_and_its_time(desk: Desk) -> None:
    record = await desk.requests.request(ANN, asked("a0"))
    await desk.rules.create(ANN, "mail/*", when="args.to.endsWith('@acme.example')")
    await desk.rules.create(ANN, "send_mail", arguments_digest=record.arguments_digest, lifetime=timedelta(minutes=5))
    cases: dict[str, tuple[dict[str, Any], State]] = {
        "a1": ({"tool": "mail/send", "arguments": b'{"to":"x@acme.example"}'}, State.APPROVED),
        "a2": ({"tool": "mail/send", "arguments": b'{"to":"x@evil.example"}'}, State.PENDING),
        "a3": ({"tool": "mail/send", "arguments": b"{}"}, State.PENDING),
        "a4": ({}, State.APPROVED),
        "a5": ({"arguments": b'{"to":"z"}'}, State.PENDING),
        "a6": ({"tool": "mailer"}, State.PENDING),
    }
    for approval_id, (fields, state) in cases.items():
        assert (await desk.requests.request(ANN, asked(approval_id, **fields))).state is state
    desk.clock.advance(300)
    assert (await desk.requests.request(ANN, asked("a7"))).state is State.PENDING


async def test_rules_are_listed_and_deleted_by_their_user_only(desk: Desk) -> None:
    rule = await desk.rules.create(ANN, "send_mail")
    assert await desk.rules.page(EVE, None, 10) == []
    for stranger in (EVE, RIVAL):
        with pytest.raises(RuleNotFound):
            await desk.rules.delete(stranger, rule.rule_id)
    await desk.rules.delete(ANN, rule.rule_id)
    with pytest.raises(RuleNotFound):
        await desk.rules.delete(ANN, rule.rule_id)
    assert (await desk.requests.request(ANN, asked())).state is State.PENDING


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"when": "args.to ="}, PolicyInvalid),
        ({"when": "somebody == 1"}, PolicyInvalid),
        ({"arguments_digest": "short"}, InvalidRequest),
        ({"lifetime": timedelta()}, InvalidRequest),
        ({"lifetime": timedelta.max}, InvalidRequest),
    ],
)
async def test_a_rule_that_could_never_serve_is_refused(desk: Desk, fields: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        await desk.rules.create(ANN, "send_mail", **fields)


async def test_a_service_reads_every_tenant_and_decides_and_asks_for_none(desk: Desk) -> None:
    service = Principal(tenant="", user="orchestrator", actor="orchestrator")
    await desk.requests.request(ANN, asked("a1"))
    await desk.requests.request(RIVAL, asked("a2"))
    assert {record.tenant for record in await desk.records.many(service, ["a1", "a2"])} == {"acme", "rival"}
    with pytest.raises(ApprovalNotFound):
        await desk.decisions.decide(service, "a1", Approve())
    with pytest.raises(NotEntitled):
        await desk.requests.request(service, asked("a3"))


async def test_a_restart_keeps_pending_records_and_their_deadlines(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1", timeout=timedelta(days=2)))
    desk.clock.advance(timedelta(days=1).total_seconds())
    later = desk_over(desk.engine, desk.clock)
    assert (await later.records.one("acme", "a1")).deadline == START + timedelta(days=2)
    assert (await later.decisions.decide(BOB, "a1", Approve())).now


async def test_requests_made_at_once_make_one_record(desk: Desk) -> None:
    records = await asyncio.gather(*(desk.requests.request(ANN, asked()) for _ in range(10)))
    assert len(set(records)) == 1
    assert [change.action for change in await desk.log.after(0, 100)] == ["requested"]
