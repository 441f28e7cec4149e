"""Each call of ApprovalService over a real socket: what it answers, and the reason and details when it refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from proctor.agent.v1 import agent_pb2
from proctor.approval.v1 import approval_service_pb2 as pb
from services.chassis.identity import Principal
from tests.support.approval_wire import Remote, serve_approval
from tests.support.approvals import ANN, BOB, EVE, RIVAL
from tests.support.clock import FakeClock
from tests.support.platform import recorded_telemetry

AUDITOR = Principal(tenant="acme", user="audrey", scopes=frozenset({"approvals:audit"}))
APPROVE = {"approve": pb.ApproveDecision()}
DENY = {"deny": pb.DenyDecision()}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def remote(sqlite_url: str, clock: FakeClock) -> AsyncIterator[Remote]:
    async with serve_approval(sqlite_url, clock=clock, deny=("forbidden",), auto_approve=("harmless",)) as served:
        yield served


async def test_a_record_travels_whole(remote: Remote) -> None:
    question = pb.Question(
        question_id="q1", text="Which?", type=pb.QUESTION_TYPE_MULTIPLE_CHOICE, options=["a", "b"], allow_other=True
    )
    asked = await remote.ask(
        ANN,
        kind=pb.APPROVAL_KIND_QUESTION,
        conversation_id="c1",
        reason="because",
        policy="the policy",
        agent="handbook",
        timeout=Duration(seconds=3600),
        questions=[question],
    )
    assert (asked.tenant, asked.requested_by, asked.agent, asked.reason) == ("acme", "ann", "handbook", "because")
    assert list(asked.questions) == [question]
    assert asked.deadline.seconds - asked.requested_at.seconds == 3600
    assert asked.state == pb.APPROVAL_STATE_PENDING
    answer = pb.AnswerDecision(answers_json=b'{"q1":["a","other"]}')
    decided = await remote.call(ANN, "Decide", approval_id="a1", answer=answer, comment="so be it")
    assert decided.decided_now
    assert decided.approval.state == pb.APPROVAL_STATE_ANSWERED
    assert decided.approval.comment == "so be it"
    got = await remote.call(ANN, "BatchGetApprovals", approval_ids=["a1", "unknown"])
    assert list(got.approvals) == [decided.approval]


async def test_the_decider_is_whom_the_token_names_and_the_body_cannot_say_otherwise(remote: Remote) -> None:
    assert not {"decided_by", "user", "principal", "decider"} & set(pb.DecideRequest.DESCRIPTOR.fields_by_name)
    await remote.ask(ANN)
    failure = await remote.refused(EVE, "Decide", approval_id="a1", **APPROVE)
    assert (failure.code, failure.reason) == (grpc.StatusCode.PERMISSION_DENIED, "NOT_ENTITLED")
    decided = await remote.call(BOB, "Decide", approval_id="a1", **APPROVE)
    assert decided.approval.decided_by == "bob"


async def test_without_an_identity_nothing_is_told(remote: Remote) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await remote.stub.ListApprovals(pb.ListApprovalsRequest())
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("principal", "decision", "code", "reason"),
    [
        (RIVAL, APPROVE, grpc.StatusCode.NOT_FOUND, "APPROVAL_NOT_FOUND"),
        (BOB, {"client_tool": pb.ClientToolDecision(result_json=b'{"parts":[]}')}, "INVALID", "WRONG_DECISION_KIND"),
        (BOB, {"edit": pb.EditDecision(arguments_json=b'{"copies":1}')}, "INVALID", "ANSWER_INVALID"),
        (BOB, {}, "INVALID", "INVALID_REQUEST"),
        (BOB, {**APPROVE, "run_id": "run2"}, "INVALID", "INVALID_REQUEST"),
        (BOB, {**APPROVE, "arguments_digest": "0" * 64}, grpc.StatusCode.FAILED_PRECONDITION, "DIGEST_MISMATCH"),
        (BOB, {"approve": pb.ApproveDecision(remember=9)}, "INVALID", "INVALID_REQUEST"),  # type: ignore[arg-type]
    ],
)
async def test_a_refused_decision_says_why_and_leaves_the_record_pending(
    remote: Remote, principal: Principal, decision: dict[str, Any], code: Any, reason: str
) -> None:
    await remote.ask(ANN)
    failure = await remote.refused(principal, "Decide", approval_id="a1", **decision)
    assert failure.reason == reason
    assert failure.code is (grpc.StatusCode.INVALID_ARGUMENT if code == "INVALID" else code)
    assert (await remote.call(BOB, "Decide", approval_id="a1", **DENY)).decided_now


async def test_the_loser_learns_who_won(remote: Remote) -> None:
    await remote.ask(ANN)
    await remote.call(BOB, "Decide", approval_id="a1", **DENY)
    failure = await remote.refused(ANN, "Decide", approval_id="a1", **APPROVE)
    assert failure.reason == "APPROVAL_DECIDED"
    assert failure.metadata["decided_by"] == "bob"
    assert failure.metadata["state"] == "denied"


async def test_a_late_decision_says_that_it_expired(remote: Remote, clock: FakeClock) -> None:
    await remote.ask(ANN)
    clock.advance(120)
    assert (await remote.refused(BOB, "Decide", approval_id="a1", **APPROVE)).reason == "APPROVAL_EXPIRED"
    [record] = (await remote.call(ANN, "BatchGetApprovals", approval_ids=["a1"])).approvals
    assert record.state == pb.APPROVAL_STATE_EXPIRED


async def test_another_call_under_the_same_id_already_exists(remote: Remote) -> None:
    await remote.ask(ANN)
    await remote.ask(ANN)
    fields = {"kind": 1, "run_id": "run1", "round": 2, "call_id": "call-a1", "tool": "send_mail"}
    failure = await remote.refused(ANN, "RequestApproval", approval_id="a1", **fields)
    assert (failure.code, failure.reason) == (grpc.StatusCode.ALREADY_EXISTS, "APPROVAL_CONFLICT")


async def test_a_deadline_longer_than_permitted_is_shortened(remote: Remote) -> None:
    asked = await remote.ask(ANN, timeout=Duration(seconds=10**11))
    assert asked.deadline.seconds - asked.requested_at.seconds == 30 * 86400


async def test_text_with_nul_is_kept_without_it(remote: Remote) -> None:
    assert (await remote.ask(ANN, reason="a\x00b")).reason == "a\N{REPLACEMENT CHARACTER}b"


async def test_lists_go_on_by_token_and_refuse_another_lists(remote: Remote, clock: FakeClock) -> None:
    for number in range(5):
        clock.advance(1)
        await remote.ask(ANN, f"a{number}")
    seen: list[str] = []
    token = ""
    while True:
        page = await remote.call(ANN, "ListApprovals", page_size=2, page_token=token)
        seen += [record.approval_id for record in page.approvals]
        token = page.next_page_token
        if not token:
            break
    assert seen == ["a4", "a3", "a2", "a1", "a0"]
    first = await remote.call(ANN, "ListApprovals", page_size=2)
    for wrong in ({"tool": "other"}, {"states": [pb.APPROVAL_STATE_PENDING]}):
        failure = await remote.refused(ANN, "ListApprovals", page_token=first.next_page_token, **wrong)
        assert failure.reason == "PAGE_TOKEN_INVALID"
    assert (await remote.refused(ANN, "ListApprovals", page_token="!")).reason == "PAGE_TOKEN_INVALID"


async def test_a_page_of_large_records_is_cut_where_a_message_ends(remote: Remote) -> None:
    large = json.dumps({"to": "x" * 900_000}).encode()
    for number in range(9):
        await remote.ask(ANN, f"a{number}", arguments_json=large)
    page = await remote.call(ANN, "ListApprovals")
    assert 0 < len(page.approvals) < 9
    rest = await remote.call(ANN, "ListApprovals", page_token=page.next_page_token)
    assert len(page.approvals) + len(rest.approvals) == 9
    batch = await remote.call(ANN, "BatchGetApprovals", approval_ids=[f"a{n}" for n in range(9)])
    assert len(batch.approvals) + len(batch.left_out) == 9
    rest = await remote.call(ANN, "BatchGetApprovals", approval_ids=batch.left_out)
    assert {record.approval_id for record in rest.approvals} == set(batch.left_out)


async def test_cancelling_withdraws_and_leaves_what_is_decided(remote: Remote) -> None:
    await remote.ask(ANN)
    assert (await remote.refused(EVE, "CancelApproval", approval_id="a1")).reason == "NOT_ENTITLED"
    cancelled = (await remote.call(ANN, "CancelApproval", approval_id="a1")).approval
    assert cancelled.state == pb.APPROVAL_STATE_CANCELLED
    assert (await remote.refused(BOB, "Decide", approval_id="a1", **APPROVE)).reason == "APPROVAL_DECIDED"


async def test_rules_are_made_listed_and_deleted(remote: Remote) -> None:
    made = (
        await remote.call(
            ANN, "CreateAllowRule", tool="send_mail", when="args.to == 'x'", lifetime=Duration(seconds=60)
        )
    ).rule
    assert (made.user, made.expires_at.seconds - made.created_at.seconds) == ("ann", 60)
    await remote.call(ANN, "CreateAllowRule", tool="other")
    first = await remote.call(ANN, "ListAllowRules", page_size=1)
    second = await remote.call(ANN, "ListAllowRules", page_size=1, page_token=first.next_page_token)
    assert {first.rules[0].tool, second.rules[0].tool} == {"send_mail", "other"}
    assert not second.next_page_token
    record = await remote.ask(ANN)
    assert (record.state, record.decided_by) == (pb.APPROVAL_STATE_APPROVED, f"rule:{made.rule_id}")
    assert (await remote.refused(EVE, "DeleteAllowRule", rule_id=made.rule_id)).reason == "RULE_NOT_FOUND"
    await remote.call(ANN, "DeleteAllowRule", rule_id=made.rule_id)
    assert (await remote.ask(ANN, "a2")).state == pb.APPROVAL_STATE_PENDING


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"when": "nobody"}, "POLICY_INVALID"),
        ({"lifetime": Duration(seconds=-1)}, "INVALID_REQUEST"),
        ({"arguments_digest": "x"}, "INVALID_REQUEST"),
    ],
)
async def test_a_bad_rule_is_refused(remote: Remote, fields: dict[str, Any], reason: str) -> None:
    assert (await remote.refused(ANN, "CreateAllowRule", tool="send_mail", **fields)).reason == reason


async def test_the_gate_follows_bindings_lists_and_default(remote: Remote) -> None:
    quorum = agent_pb2.ToolBinding(
        tool="pay",
        policy=agent_pb2.TOOL_POLICY_QUORUM,
        quorum=2,
        group="ops",
        when="args.amount > 100 && principal.user == 'ann'",
        deadline=Duration(seconds=86400),
    )
    rows: list[tuple[dict[str, Any], int]] = [
        ({"tool": "pay", "arguments_json": b'{"amount":500}', "bindings": [quorum]}, pb.GATE_QUORUM),
        ({"tool": "pay", "arguments_json": b'{"amount":5}', "bindings": [quorum]}, pb.GATE_ASK),
        ({"tool": "harmless"}, pb.GATE_ALLOW),
        ({"tool": "forbidden", "tool_default": pb.TOOL_DEFAULT_ALLOW}, pb.GATE_DENY),
        ({"tool": "read", "tool_default": pb.TOOL_DEFAULT_ALLOW}, pb.GATE_ALLOW),
        ({"tool": "read", "tool_default": pb.TOOL_DEFAULT_ASK_EVERY_CALL}, pb.GATE_ASK_ALWAYS),
    ]
    for fields, gate in rows:
        assert (await remote.call(ANN, "EvaluateGate", **fields)).gate == gate
    ruling = await remote.call(ANN, "EvaluateGate", **rows[0][0])
    assert (ruling.quorum, ruling.group, ruling.timeout.seconds) == (2, "ops", 86400)
    assert "ops" in ruling.policy


async def test_a_policy_is_checked_before_it_is_saved(remote: Remote) -> None:
    good = agent_pb2.ToolBinding(tool="pay", policy=agent_pb2.TOOL_POLICY_ASK, when="args.amount > 1")
    bad = agent_pb2.ToolBinding(tool="pay", policy=agent_pb2.TOOL_POLICY_DENY, when="amount > 1")
    await remote.call(ANN, "CheckPolicy", bindings=[good])
    failure = await remote.refused(ANN, "CheckPolicy", bindings=[good, bad])
    assert failure.reason == "POLICY_INVALID"
    assert [violation.field for violation in failure.violations] == ["bindings[1].when"]
    assert (await remote.refused(ANN, "EvaluateGate", tool="pay", bindings=[bad])).reason == "POLICY_INVALID"


async def test_the_audit_log_is_listed_verified_and_exported_with_its_scope_only(remote: Remote) -> None:
    await remote.ask(ANN)
    await remote.call(BOB, "Decide", approval_id="a1", **DENY)
    for method in ("ListAuditEntries", "VerifyAudit"):
        assert (await remote.refused(BOB, method)).reason == "PERMISSION_DENIED"
    first = await remote.call(AUDITOR, "ListAuditEntries", page_size=1)
    second = await remote.call(AUDITOR, "ListAuditEntries", page_size=1, page_token=first.next_page_token)
    assert [first.entries[0].action, second.entries[0].action] == ["requested", "denied"]
    assert not second.next_page_token
    verified = await remote.call(AUDITOR, "VerifyAudit")
    assert (verified.intact, verified.entries, verified.head_hash) == (True, 2, second.entries[0].hash)
    noted = await remote.call(AUDITOR, "VerifyAudit", known_sequence=1, known_hash="0" * 64)
    assert (noted.intact, noted.broken_at) == (False, 1)
    metadata = remote.platform.signer.metadata(AUDITOR)
    chunks = [chunk.json_lines async for chunk in remote.stub.ExportAudit(pb.ExportAuditRequest(), metadata=metadata)]
    assert [json.loads(line)["hash"] for line in b"".join(chunks).splitlines()] == [
        first.entries[0].hash,
        second.entries[0].hash,
    ]


async def test_each_outcome_is_counted_and_timed(sqlite_url: str, clock: FakeClock) -> None:
    recorded = recorded_telemetry()
    async with serve_approval(sqlite_url, clock=clock, telemetry=recorded.telemetry) as remote:
        await remote.ask(ANN)
        clock.advance(30)
        await remote.call(BOB, "Decide", approval_id="a1", **DENY)
        counted: Any = recorded.points("proctor.approvals")[0]
        timed: Any = recorded.points("proctor.approvals.decision.duration")[0]
    assert dict(counted.attributes) == {"proctor.approval.outcome": "denied", "proctor.approval.kind": "tool"}
    assert (timed.count, timed.sum) == (1, 30.0)
