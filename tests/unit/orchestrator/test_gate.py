"""The one gate: refusals that a model can act on, approval, execution, evidence, order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.agent import ToolBinding, ToolPolicy
from services.orchestrator.domain.events import (
    ApprovalRequested,
    ApprovalResolved,
    ClientToolRequested,
    EvidenceAdded,
    Resolution,
    ToolCallFinished,
    ToolCallStarted,
)
from services.orchestrator.domain.messages import Budget, EvidenceKind, ToolCall, ToolSpec
from services.orchestrator.domain.run import RunCancelRequested
from services.orchestrator.domain.state import Pending
from services.orchestrator.evidence import Finding
from services.orchestrator.ports import GateVerdict, RecordState
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolResult
from tests.support.orchestrator_kit import FakeTool, answering, bench, tool_call


async def test_an_allowed_call_runs_and_its_result_goes_back() -> None:
    search = FakeTool("search", answering("found it"))
    b = bench(search)
    b.propose(tool_call("c1", "search", query="x"))
    await b.gate.work_off(b.leg)
    assert b.results() == {"c1": "found it"}
    assert b.statuses() == {"c1": "COMPLETED"}
    assert search.executions == [{"query": "x"}]


async def test_an_invented_name_lists_near_names_and_the_third_time_says_stop() -> None:
    b = bench(FakeTool("search", answering("")))
    for number in range(3):
        b.propose(tool_call(f"c{number}", "serch", query="x"))
        await b.gate.work_off(b.leg)
        text = b.results()[f"c{number}"]
        assert ("'search'" in text) == (number < 2)
        assert ("stop calling tools" in text) == (number == 2)
    assert set(b.statuses().values()) == {"UNKNOWN_TOOL"}


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (ToolCall(call_id="c1", name="search", malformed_arguments='{"query": '), "not a JSON object"),
        (ToolCall(call_id="c1", name="search", arguments_json=b"null"), "null"),
        (tool_call("c1", "search"), "'query' is a required property"),
        (tool_call("c1", "search", query=5), "argument 'query'"),
    ],
)
async def test_malformed_arguments_are_a_correctable_error_that_names_the_field(call: ToolCall, told: str) -> None:
    search = FakeTool("search", answering(""))
    b = bench(search)
    b.propose(call)
    await b.gate.work_off(b.leg)
    assert told in b.results()["c1"]
    assert b.statuses() == {"c1": "INVALID"}
    assert search.executions == []


async def test_enums_and_nested_types_are_checked() -> None:
    schema = {
        "type": "object",
        "properties": {"unit": {"enum": ["C", "F"]}, "at": {"type": "array", "items": {"type": "number"}}},
    }
    b = bench(FakeTool("weather", answering(""), schema=schema))
    b.propose(tool_call("c1", "weather", unit="K"), tool_call("c2", "weather", at=[1, "x"]))
    await b.gate.work_off(b.leg)
    assert "argument 'unit'" in b.results()["c1"]
    assert "argument 'at/1'" in b.results()["c2"]


async def test_the_same_call_with_reordered_keys_is_a_duplicate() -> None:
    tool = FakeTool("pair", answering("ok"), schema={"type": "object"})
    b = bench(tool)
    b.propose(tool_call("c1", "pair", a=1, b=2))
    await b.gate.work_off(b.leg)
    b.propose(tool_call("c2", "pair", b=2, a=1))
    await b.gate.work_off(b.leg)
    assert b.statuses() == {"c1": "COMPLETED", "c2": "DUPLICATE"}
    assert len(tool.executions) == 1


async def test_identical_calls_in_one_round_execute_once() -> None:
    tool = FakeTool("search", answering("ok"))
    b = bench(tool)
    b.propose(tool_call("c1", "search", query="x"), tool_call("c2", "search", query="x"))
    await b.gate.work_off(b.leg)
    assert len(tool.executions) == 1
    assert b.statuses() == {"c1": "COMPLETED", "c2": "DUPLICATE"}
    assert b.leg.progress.spent.tool_calls == 1


async def test_a_repeatable_tool_may_repeat() -> None:
    tool = FakeTool("clock", answering("noon"), schema={"type": "object"}, options={"repeatable": True})
    b = bench(tool)
    b.propose(tool_call("c1", "clock"), tool_call("c2", "clock"))
    await b.gate.work_off(b.leg)
    assert len(tool.executions) == 2


async def test_a_failed_execution_does_not_count_as_done() -> None:
    outcomes = iter([RuntimeError("boom"), None])

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        if (error := next(outcomes)) is not None:
            raise error
        return ToolResult(text="fine")

    b = bench(FakeTool("search", work))
    for call_id in ("c1", "c2"):
        b.propose(tool_call(call_id, "search", query="x"))
        await b.gate.work_off(b.leg)
    assert b.statuses() == {"c1": "FAILED", "c2": "COMPLETED"}


async def test_cooldown_and_unique_refuse_with_a_reason() -> None:
    slow = FakeTool("slow", answering("ok"), options={"cooldown": timedelta(seconds=30)})
    once = FakeTool("once", answering("ok"), options={"unique": True})
    b = bench(slow, once)
    b.propose(tool_call("c1", "slow", query="1"), tool_call("c2", "once", query="1"))
    await b.gate.work_off(b.leg)
    b.clock.advance(10)
    b.propose(tool_call("c3", "slow", query="2"), tool_call("c4", "once", query="2"))
    await b.gate.work_off(b.leg)
    assert "20 s" in b.results()["c3"]
    assert "once a conversation" in b.results()["c4"]
    b.clock.advance(21)
    b.propose(tool_call("c5", "slow", query="3"))
    await b.gate.work_off(b.leg)
    assert b.statuses()["c5"] == "COMPLETED"


async def test_a_cap_of_n_calls_gives_exactly_n_executions() -> None:
    tool = FakeTool("search", answering("ok"))
    b = bench(tool, budget=Budget(tool_calls=2))
    b.propose(*(tool_call(f"c{i}", "search", query=str(i)) for i in range(4)))
    await b.gate.work_off(b.leg)
    assert len(tool.executions) == 2
    assert list(b.statuses().values()).count("OVER_BUDGET") == 2


async def test_an_exception_is_a_result_and_the_others_go_on() -> None:
    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        raise ValueError("no such table")

    b = bench(FakeTool("broken", work), FakeTool("search", answering("ok")))
    b.propose(tool_call("c1", "broken", query="x"), tool_call("c2", "search", query="x"))
    await b.gate.work_off(b.leg)
    assert "no such table" in b.results()["c1"]
    assert b.statuses() == {"c1": "FAILED", "c2": "COMPLETED"}


async def test_a_tool_that_ignores_its_cancellation_cannot_hold_the_run() -> None:
    release = asyncio.Event()

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return ToolResult(text="late")

    b = bench(FakeTool("deaf", work, options={"deadline": timedelta(milliseconds=20)}))
    b.propose(tool_call("c1", "deaf", query="x"))
    async with asyncio.timeout(5):
        await b.gate.work_off(b.leg)
    assert "did not finish" in b.results()["c1"]
    release.set()


async def test_a_huge_binary_result_is_cut_and_cleaned() -> None:
    blob = "head\x00\x1b[31m" + "x" * 50_000_000 + "tail"
    b = bench(FakeTool("dump", answering(blob)), result_characters=1000)
    b.propose(tool_call("c1", "dump", query="x"))
    await b.gate.work_off(b.leg)
    text = b.results()["c1"]
    assert len(text) <= 1000
    assert text.startswith("headxxx")
    assert text.endswith("tail")
    assert "characters left out" in text
    (finished,) = b.journal.of(ToolCallFinished)
    assert finished.truncated
    assert finished.result_bytes == len(blob)


async def test_evidence_is_numbered_in_the_order_of_the_calls_whatever_finishes_first() -> None:
    first_may_end = asyncio.Event()

    def finding(name: str) -> Finding:
        return Finding(kind=EvidenceKind.PASSAGE, title=name, text=name, passage_id=name, document_id=name)

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        if arguments["query"] == "first":
            await first_may_end.wait()
        else:
            first_may_end.set()
        return ToolResult(text="", findings=(finding(arguments["query"]),))

    b = bench(FakeTool("search", work))
    b.propose(tool_call("c1", "search", query="first"), tool_call("c2", "search", query="second"))
    await b.gate.work_off(b.leg)
    assert [(e.evidence.number, e.evidence.title) for e in b.journal.of(EvidenceAdded)] == [(1, "first"), (2, "second")]
    assert 'number="1"' in b.results()["c1"]


async def test_a_gated_call_asks_and_does_not_run() -> None:
    tool = FakeTool("run_code", answering("42"), consent=Consent.ASK, effect=Effect.SIDE_EFFECT)
    b = bench(tool)
    b.propose(tool_call("c1", "run_code", query="x"))
    await b.gate.work_off(b.leg)
    assert tool.executions == []
    assert [p.call.call_id for p in b.leg.progress.waiting] == ["c1"]
    (asked,) = b.journal.of(ApprovalRequested)
    assert (asked.tool, asked.reason, asked.call_id) == ("run_code", "to know", "c1")


async def test_a_read_only_tool_that_a_policy_names_asks_too() -> None:
    tool = FakeTool("search", answering("ok"))
    b = bench(tool, bindings=(ToolBinding(tool="search", policy=ToolPolicy.ASK),))
    b.propose(tool_call("c1", "search", query="x"))
    await b.gate.work_off(b.leg)
    assert tool.executions == []


async def test_a_denying_policy_refuses_without_asking() -> None:
    tool = FakeTool("mail", answering("sent"), consent=Consent.ASK)
    b = bench(tool)
    b.approvals.verdict = GateVerdict.DENY
    b.propose(tool_call("c1", "mail", query="x"))
    await b.gate.work_off(b.leg)
    assert (tool.executions, b.approvals.requests) == ([], [])
    assert "policy of this agent refuses" in b.results()["c1"]


async def test_a_request_is_told_once_also_after_a_restart() -> None:
    b = bench(FakeTool("run_code", answering("42"), consent=Consent.ASK))
    b.propose(tool_call("c1", "run_code", query="x"))
    await b.gate.work_off(b.leg)
    await b.gate.work_off(b.leg)
    assert len(b.journal.of(ApprovalRequested)) == 1
    assert b.leg.progress.waiting[0].announced


async def test_approved_runs_once_with_the_asked_arguments() -> None:
    tool = FakeTool("run_code", answering("42"), consent=Consent.ASK, effect=Effect.SIDE_EFFECT)
    b = bench(tool)
    b.propose(tool_call("c1", "run_code", query="x"))
    await b.gate.work_off(b.leg)
    b.approvals.settle("c1", RecordState.APPROVED)
    await b.gate.work_off(b.leg)
    assert tool.executions == [{"query": "x"}]
    assert b.results() == {"c1": "42"}
    (resolved,) = b.journal.of(ApprovalResolved)
    assert (resolved.resolution, resolved.decided_by) == (Resolution.APPROVED, "bob")


async def test_a_decision_that_whoever_woke_the_run_has_read_is_not_asked_for_again() -> None:
    tool = FakeTool("run_code", answering("42"), consent=Consent.ASK)
    b = bench(tool)
    b.propose(tool_call("c1", "run_code", query="x"), tool_call("c2", "run_code", query="y"))
    await b.gate.work_off(b.leg)
    b.approvals.settle("c1", RecordState.APPROVED)
    known = {key: record for key, record in b.approvals.records.items() if record.call_id == "c1"}
    b.leg.decided = known
    b.approvals.asked_for.clear()
    await b.gate.work_off(b.leg)
    assert tool.executions == [{"query": "x"}]
    (others,) = b.approvals.asked_for
    assert not set(others) & set(known)


@pytest.mark.parametrize(
    ("state", "status", "told"),
    [
        (RecordState.DENIED, "DENIED", "A person refused"),
        (RecordState.EXPIRED, "EXPIRED", "Nobody decided in time"),
        (RecordState.CANCELLED, "CANCELLED", "was withdrawn"),
    ],
)
async def test_refusals_reach_the_model_as_three_messages_and_nothing_runs(
    state: RecordState, status: str, told: str
) -> None:
    tool = FakeTool("run_code", answering("42"), consent=Consent.ASK)
    b = bench(tool)
    b.propose(tool_call("c1", "run_code", query="x"))
    await b.gate.work_off(b.leg)
    b.approvals.settle("c1", state)
    await b.gate.work_off(b.leg)
    assert tool.executions == []
    assert told in b.results()["c1"]
    assert b.statuses() == {"c1": status}
    assert b.leg.progress.spent.tool_calls == 0


async def test_two_outstanding_approvals_each_get_their_own_decision() -> None:
    tool = FakeTool("run_code", answering("ok"), consent=Consent.ASK)
    b = bench(tool)
    b.propose(tool_call("c1", "run_code", query="one"), tool_call("c2", "run_code", query="two"))
    await b.gate.work_off(b.leg)
    b.approvals.settle("c2", RecordState.APPROVED)
    await b.gate.work_off(b.leg)
    assert tool.executions == [{"query": "two"}]
    assert [p.call.call_id for p in b.leg.progress.waiting] == ["c1"]
    b.approvals.settle("c1", RecordState.DENIED)
    await b.gate.work_off(b.leg)
    assert b.statuses() == {"c2": "COMPLETED", "c1": "DENIED"}
    assert len(tool.executions) == 1


async def test_changed_arguments_are_refused() -> None:
    tool = FakeTool("run_code", answering("42"), consent=Consent.ASK)
    b = bench(tool)
    b.propose(tool_call("c1", "run_code", query="x"))
    await b.gate.work_off(b.leg)
    b.approvals.settle("c1", RecordState.APPROVED, arguments_digest="0" * 64)
    await b.gate.work_off(b.leg)
    assert tool.executions == []
    assert "not the ones that were approved" in b.results()["c1"]


async def test_edited_arguments_run_and_the_model_is_told() -> None:
    tool = FakeTool("run_code", answering("42"), consent=Consent.ASK)
    b = bench(tool)
    b.propose(tool_call("c1", "run_code", query="x"))
    await b.gate.work_off(b.leg)
    edited = canonical_json({"query": "safer"})
    b.approvals.settle("c1", RecordState.EDITED, edited_arguments_json=edited)
    await b.gate.work_off(b.leg)
    assert tool.executions == [{"query": "safer"}]
    assert (
        b.results()["c1"] == 'A person changed the arguments of \'run_code\' and it ran with: {"query":"safer"}\n\n42'
    )
    (started,) = b.journal.of(ToolCallStarted)
    assert started.arguments_json == edited


async def test_edited_arguments_that_break_the_schema_do_not_run() -> None:
    tool = FakeTool("run_code", answering("42"), consent=Consent.ASK)
    b = bench(tool)
    b.propose(tool_call("c1", "run_code", query="x"))
    await b.gate.work_off(b.leg)
    b.approvals.settle("c1", RecordState.EDITED, edited_arguments_json=canonical_json({"query": 7}))
    await b.gate.work_off(b.leg)
    assert (tool.executions, b.statuses()) == ([], {"c1": "INVALID"})


async def test_a_mixed_batch_runs_the_free_call_now_and_waits_for_the_others() -> None:
    free = FakeTool("search", answering("free"))
    gated = FakeTool("run_code", answering("gated"), consent=Consent.ASK)
    theirs = ToolSpec(name="theirs", description="", parameters_json=b'{"type":"object"}', client_side=True)
    b = bench(gated, free, client_tools=(theirs,))
    b.propose(
        tool_call("c1", "run_code", query="x"), tool_call("c2", "search", query="x"), tool_call("c3", "theirs", q=1)
    )
    await b.gate.work_off(b.leg)
    assert b.results() == {"c2": "free"}
    assert {p.call.call_id for p in b.leg.progress.waiting} == {"c1", "c3"}
    assert len(b.journal.of(ClientToolRequested)) == 1
    b.approvals.settle("c1", RecordState.APPROVED)
    answer = canonical_json({"failed": False, "parts": [{"text": "from the caller"}]})
    b.approvals.settle("c3", RecordState.ANSWERED, answer_json=answer)
    await b.gate.work_off(b.leg)
    assert b.results() == {"c1": "gated", "c2": "free", "c3": "from the caller"}


async def test_a_started_side_effect_is_never_repeated_after_a_crash() -> None:
    tool = FakeTool("mail", answering("sent"), consent=Consent.ASK, effect=Effect.SIDE_EFFECT)
    b = bench(tool)
    call = tool_call("c1", "mail", query="x")
    b.propose(call)
    b.leg.progress.pending = (Pending(call=call, arguments_digest=b"d" * 32, started=True),)
    await b.gate.work_off(b.leg)
    assert tool.executions == []
    assert b.statuses() == {"c1": "OUTCOME_UNKNOWN"}
    assert "whether it took effect is unknown" in b.results()["c1"]


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT])
async def test_a_started_read_or_idempotent_call_runs_again_after_a_crash_without_asking(effect: Effect) -> None:
    tool = FakeTool("run_code", answering("42"), consent=Consent.ASK, effect=effect)
    b = bench(tool)
    call = tool_call("c1", "run_code", query="x")
    b.propose(call)
    b.leg.progress.pending = (Pending(call=call, arguments_digest=b"d" * 32, started=True),)
    await b.gate.work_off(b.leg)
    assert b.results() == {"c1": "42"}
    assert b.approvals.requests == []


async def test_the_execution_key_is_the_same_after_a_crash() -> None:
    keys: list[str] = []

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        keys.append(context.key)
        return ToolResult(text="ok")

    b = bench(FakeTool("search", work))
    b.propose(tool_call("c1", "search", query="x"))
    await b.gate.work_off(b.leg)
    assert keys == ["r1/1/c1"]


async def test_a_stopped_run_starts_no_tool() -> None:
    tool = FakeTool("search", answering("ok"))
    b = bench(tool)
    b.journal.cancelled_by = "ann"
    b.propose(tool_call("c1", "search", query="x"))
    with pytest.raises(RunCancelRequested):
        await b.gate.work_off(b.leg)
    b.propose(tool_call("c1", "search", query="x"), tool_call("c2", "search", query="y"))
    with pytest.raises(ExceptionGroup) as caught:
        await b.gate.work_off(b.leg)
    assert caught.group_contains(RunCancelRequested)
    assert tool.executions == []


async def test_calls_of_a_round_run_side_by_side_within_the_bound() -> None:
    running, most = 0, 0
    all_in = asyncio.Event()

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            all_in.set()
        await all_in.wait()
        running -= 1
        return ToolResult(text="ok")

    b = bench(FakeTool("search", work), parallel_calls=2)
    b.propose(*(tool_call(f"c{i}", "search", query=str(i)) for i in range(4)))
    async with asyncio.timeout(5):
        await b.gate.work_off(b.leg)
    assert most == 2
