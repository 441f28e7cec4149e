"""Workflows that wait for people or lose their process: they go on at the node where they stood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from services.orchestrator.domain.agent import Agent, AgentType, ToolBinding, ToolPolicy
from services.orchestrator.domain.events import ApprovalRequested, PauseKind, QuestionsAsked, StepStarted, ToolStatus
from services.orchestrator.loop import LoopEnd
from services.orchestrator.ports import GateVerdict, RecordState
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolResult
from services.orchestrator.workflow.position import Position
from tests.support.orchestrator_kit import FakeTool, ScriptedModel, answering, reply, tool_call
from tests.support.workflow_kit import WorkflowBench, workflow_bench


def acting(name: str = "act") -> FakeTool:
    return FakeTool(name=name, work=answering("acted"), consent=Consent.ASK, effect=Effect.SIDE_EFFECT)


def looking() -> FakeTool:
    return FakeTool(name="look", work=answering("seen"))


def settle(run: WorkflowBench, call_id: str, state: RecordState, **changes: Any) -> None:
    run.stand.approvals.settle(call_id, state, **changes)


async def paused(run: WorkflowBench) -> list[str]:
    """Lead a leg that ends waiting, lose the process, and return the calls that wait."""
    end, reply_ = await run.run()
    assert (end, reply_) == (LoopEnd.WAITING, None)
    run.pause()
    return [call.call_id for call in run.leg.progress.pending_calls()]


FOUR = """
nodes:
  begin: {type: start, next: one}
  one: {type: tool, tool: look, arguments: {query: a}, next: two}
  two: {type: note, text: half-way, next: four}
  four: {type: tool, tool: act, arguments: {query: b}, next: done}
  done: {type: end, output: "{{ nodes.one.text }} {{ nodes.four.text }}"}
"""


async def test_a_workflow_that_pauses_in_its_fourth_node_resumes_there() -> None:
    look, act = looking(), acting()
    run = workflow_bench(FOUR, look, act)
    assert await paused(run) == ["four-1"]
    assert act.executions == []
    settle(run, "four-1", RecordState.APPROVED)
    before = len(run.stand.journal.events)
    assert await run.answer() == "seen acted"
    assert (len(look.executions), len(act.executions)) == (1, 1)
    resumed = run.stand.journal.events[before:]
    assert [event.step_id for event in resumed if isinstance(event, StepStarted)] == ["done"]


@pytest.mark.parametrize("state", [RecordState.DENIED, RecordState.EXPIRED, RecordState.CANCELLED])
async def test_a_refused_call_fails_its_node_and_never_runs(state: RecordState) -> None:
    act = acting()
    run = workflow_bench(FOUR, looking(), act)
    await paused(run)
    settle(run, "four-1", state)
    with pytest.raises(ExceptionGroup) as caught:
        await run.run()
    assert "node 'four' failed" in str(caught.value.exceptions[0])
    assert act.executions == []


def had_begun(run: WorkflowBench, step: str) -> bool:
    """Whether the restored state knows that the step's call has started, or that the step is over."""
    branch = run.leg.progress.branches.get(step)
    if branch is not None:
        return branch.pending[0].started
    position = Position.decode(run.leg.progress.strategy)
    return step in position.visits and all(thread.at != step for thread in position.threads.values())


async def test_from_every_checkpoint_a_run_goes_on_without_repeating_an_effect() -> None:
    """As after kill -9 right behind each commit: an effect follows only when its start was not saved."""
    whole = workflow_bench(FOUR, looking(), acting())
    whole.stand.approvals.verdict = GateVerdict.ALLOW
    await whole.answer()
    checkpoints = len(whole.stand.journal.checkpoints)
    assert checkpoints > 10
    ends = []
    for count in range(1, checkpoints + 1):
        act = acting()
        run = workflow_bench(FOUR, looking(), act)
        run.stand.approvals.verdict = GateVerdict.ALLOW
        await run.answer()
        del run.stand.journal.checkpoints[count:]
        run.restart()
        begun = had_begun(run, "four")
        act.executions.clear()
        try:
            ends.append(await run.answer())
        except ExceptionGroup as group:
            ends.append(str(group.exceptions[0]))
        assert len(act.executions) == (0 if begun else 1), count
    # One checkpoint holds the start without the result: that effect is told as unknown.
    unknown = [end for end in ends if "whether it took effect is unknown" in end]
    assert len(unknown) == 1
    assert {end for end in ends if end not in unknown} == {"seen acted"}


async def test_an_effect_whose_start_is_saved_is_not_repeated_after_a_crash() -> None:
    act = acting()
    run = workflow_bench(FOUR, looking(), act)
    run.stand.approvals.verdict = GateVerdict.ALLOW

    class Killed(BaseException):
        pass

    async def dying(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        raise Killed

    act.work = dying
    with pytest.raises(BaseException) as died:
        await run.run()
    assert isinstance(died.value, BaseExceptionGroup)
    run.restart()
    act.work = answering("acted")
    with pytest.raises(ExceptionGroup) as caught:
        await run.run()
    assert "unknown" in str(caught.value.exceptions[0])
    assert len(act.executions) == 1
    assert run.stand.statuses()["four-1"] == ToolStatus.OUTCOME_UNKNOWN.name


async def test_two_branches_wait_at_once_and_are_decided_in_any_order() -> None:
    act = acting()
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: fork}
          fork: {type: parallel, branches: [left, right], join: done}
          left: {type: tool, tool: act, arguments: {query: l}, next: done}
          right: {type: tool, tool: act, arguments: {query: r}, next: last}
          last: {type: note, text: right was done, next: done}
          done: {type: end, output: "{{ nodes.left.text }} {{ nodes.right.text }}"}
        """,
        act,
    )
    assert sorted(await paused(run)) == ["left-1", "right-1"]
    settle(run, "right-1", RecordState.APPROVED)
    assert await paused(run) == ["left-1"]
    assert run.finished()["last"] == "right was done"
    settle(run, "left-1", RecordState.APPROVED)
    assert await run.answer() == "acted acted"
    assert [arguments["query"] for arguments in act.executions] == ["r", "l"]


APPROVAL = """
nodes:
  begin: {type: start, next: ask}
  ask:
    type: approval
    message: "Pay {{ input }}?"
    details: {amount: 10}
    denied: no
    next: done
  no: {type: end, output: "not paid: {{ nodes.ask.status }}"}
  done: {type: end, output: "paid {{ nodes.ask.value.amount }}"}
"""


async def test_an_approval_node_asks_with_its_message_and_goes_the_way_that_was_decided() -> None:
    run = workflow_bench(APPROVAL, question="Bob")
    assert await paused(run) == ["ask-1"]
    (asked,) = run.stand.journal.of(ApprovalRequested)
    assert (asked.tool, asked.arguments_json) == ("request_approval", b'{"details":{"amount":10},"message":"Pay Bob?"}')
    settle(run, "ask-1", RecordState.APPROVED)
    assert await run.answer() == "paid 10"


async def test_values_that_a_person_edits_in_an_approval_are_those_that_the_workflow_goes_on_with() -> None:
    run = workflow_bench(APPROVAL)
    await paused(run)
    edited = b'{"details":{"amount":7},"message":"Pay?"}'
    settle(run, "ask-1", RecordState.EDITED, edited_arguments_json=edited)
    assert await run.answer() == "paid 7"


@pytest.mark.parametrize(("state", "status"), [(RecordState.DENIED, "denied"), (RecordState.EXPIRED, "expired")])
async def test_an_approval_that_is_refused_leads_where_the_node_says(state: RecordState, status: str) -> None:
    run = workflow_bench(APPROVAL)
    await paused(run)
    settle(run, "ask-1", state)
    assert await run.answer() == f"not paid: {status}"


async def test_a_question_node_waits_for_answers_and_hands_them_on() -> None:
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: ask}
          ask:
            type: question
            questions: [{question_id: city, text: "Where to, {{ user }}?", type: text}]
            next: done
          done: {type: end, output: "To {{ nodes.ask.answers.city }}"}
        """
    )
    end, _ = await run.run()
    assert end is LoopEnd.WAITING
    (pending,) = run.leg.progress.pending_calls()
    assert pending.kind is PauseKind.QUESTION
    (asked,) = run.stand.journal.of(QuestionsAsked)
    assert b"Where to, ann?" in asked.questions_json
    run.pause()
    settle(run, "ask-1", RecordState.ANSWERED, answer_json=b'{"city":"Rome"}')
    assert await run.answer() == "To Rome"


async def test_a_skipped_question_is_told_as_such() -> None:
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: ask}
          ask: {type: question, questions: [{question_id: q, text: "Where?", type: text}], next: skipped}
          skipped: {type: condition, branches: [{when: nodes.ask.skipped, next: home}], else: done}
          home: {type: end, output: at home}
          done: {type: end}
        """
    )
    await paused(run)
    settle(run, "ask-1", RecordState.ANSWERED, skipped=True)
    assert await run.answer() == "at home"


async def test_nobody_is_asked_a_question_in_a_run_that_nobody_attends() -> None:
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: ask}
          ask: {type: question, questions: [{question_id: q, text: "Where?", type: text}], next: done, on_error: done}
          done: {type: end, output: "{{ nodes.ask.error }}"}
        """,
        unattended=True,
    )
    assert await run.answer() == "nobody is there to answer a question"


async def test_an_agent_in_a_node_asks_before_it_acts_and_goes_on_with_what_it_knew() -> None:
    act = acting()
    model = ScriptedModel([reply("", tool_call("c1", "act", query="x"))])
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: work}
          work: {type: agent, tools: [act], next: done}
          done: {type: end, output: "{{ nodes.work.text }}"}
        """,
        act,
        model=model,
    )
    assert await paused(run) == ["c1"]
    assert act.executions == []
    model.replies.append(reply("It is done."))
    settle(run, "c1", RecordState.APPROVED)
    assert await run.answer() == "It is done."
    assert [m.text for m in model.requests[1].messages if m.tool_call_id] == ["acted"]


INNER = """
nodes:
  begin: {type: start, next: ask}
  ask: {type: approval, message: "Go on?", next: done}
  done: {type: end, output: "inner done with {{ input }}"}
"""


async def test_a_workflow_inside_a_workflow_pauses_and_resumes_where_it_stood() -> None:
    inner = Agent(agent_id="inner", name="inner", type=AgentType.WORKFLOW, workflow_yaml=INNER)
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: work}
          work: {type: agent, agent: inner, prompt: "{{ input }}", next: done}
          done: {type: end, output: "outer: {{ nodes.work.text }}"}
        """,
        agents={"inner": inner},
    )
    assert await paused(run) == ["work-ask-1"]
    settle(run, "work-ask-1", RecordState.APPROVED)
    assert await run.answer() == "outer: inner done with Why?"
    assert "work.done" in run.started()
    assert run.leg.progress.branches == {}


async def test_workflows_that_stand_inside_each_other_without_end_fail_at_a_bound() -> None:
    round_and_round = """
nodes:
  begin: {type: start, next: work}
  work: {type: agent, agent: again, next: done}
  done: {type: end}
"""
    again = Agent(agent_id="again", name="again", type=AgentType.WORKFLOW, workflow_yaml=round_and_round)
    run = workflow_bench(round_and_round, agents={"again": again})
    with pytest.raises(ExceptionGroup) as caught:
        await run.run()
    assert "deep inside each other" in str(caught.value.exceptions[0])


async def test_the_policy_of_an_approval_node_is_its_own() -> None:
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: ask}
          ask: {type: approval, message: "Go?", group: finance, quorum: 2, deadline_seconds: 600, next: done}
          done: {type: end}
        """
    )
    seen: list[tuple[ToolBinding, ...]] = []
    evaluate = run.stand.approvals.evaluate

    async def watching(principal: Any, *, bindings: tuple[ToolBinding, ...], **rest: Any) -> Any:
        seen.append(bindings)
        return await evaluate(principal, bindings=bindings, **rest)

    run.stand.approvals.evaluate = watching  # type: ignore[method-assign]
    await paused(run)
    (binding,) = seen[0]
    assert (binding.policy, binding.quorum, binding.group) == (ToolPolicy.QUORUM, 2, "finance")
    assert binding.deadline is not None
    assert binding.deadline.total_seconds() == 600
