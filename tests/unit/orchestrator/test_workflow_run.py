"""Running a workflow: its nodes, its cycles, its branches, its failures."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from services.chassis.errors import InvalidRequest
from services.orchestrator.domain.agent import Agent, ToolBinding, ToolPolicy
from services.orchestrator.domain.events import AnswerDelta, Notice, StepFinished, StepStarted, ToolCallProposed
from services.orchestrator.domain.messages import Budget, OutputFormat
from services.orchestrator.guardrails.guards import Guards
from services.orchestrator.guardrails.patterns import Patterns
from services.orchestrator.guardrails.ports import Check, Checked, FailMode, Guardrail, Stage
from services.orchestrator.strategies.workflow.outcome import OutputMisses, StepLimitReached, WorkflowNodeFailed
from services.orchestrator.tools.ports import Effect, ToolContext, ToolResult
from tests.support.orchestrator_kit import FakeTool, ScriptedModel, answering, messages_of, reply, tool_call
from tests.support.workflow_kit import workflow_bench


def looking(text: str = "seen", **options: Any) -> FakeTool:
    return FakeTool(name="look", work=answering(text), **options)


def failing(times: int, text: str = "seen") -> FakeTool:
    """Return a tool that fails so often before it works."""
    left = [times]

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        left[0] -= 1
        return ToolResult(text=text if left[0] < 0 else "no luck", failed=left[0] >= 0)

    return FakeTool(name="look", work=work)


async def test_nodes_run_one_after_the_other_and_read_what_came_before() -> None:
    look = looking('{"price": 12}')
    run = workflow_bench(
        """
        state: {total: 0}
        nodes:
          begin: {type: start, next: find}
          find: {type: tool, tool: look, arguments: {query: "{{ input }}"}, next: add}
          add: {type: state, set: {total: nodes.find.value.price * 2}, next: tell}
          tell: {type: note, text: "Found {{ nodes.find.value.price }}.", next: done}
          done: {type: end, output: "It costs {{ state.total }}."}
        """,
        look,
    )
    assert await run.answer() == "It costs 24."
    assert look.executions == [{"query": "Why?"}]
    assert run.started() == ["begin", "find", "add", "tell", "done"]
    assert run.finished()["add"] == "total = 24"
    assert [event.text for event in run.stand.journal.of(AnswerDelta)] == ["It costs 24."]
    assert Notice(code="workflow_note", text="Found 12.") in run.stand.journal.events
    assert run.leg.progress.branches == {}


async def test_a_condition_takes_the_first_branch_that_holds_and_a_cycle_ends_when_it_says() -> None:
    look = looking()
    run = workflow_bench(
        """
        state: {tries: 0}
        nodes:
          begin: {type: start, next: find}
          find: {type: tool, tool: look, arguments: {query: again}, next: count}
          count: {type: state, set: {tries: state.tries + 1}, next: enough}
          enough: {type: condition, branches: [{when: state.tries >= 3, next: done}], else: find}
          done: {type: end, output: "after {{ state.tries }}"}
        """,
        look,
    )
    assert await run.answer() == "after 3"
    assert len(look.executions) == 3
    assert [step for step in run.started() if step.startswith("find")] == ["find", "find-2", "find-3"]


async def test_a_loop_that_never_ends_fails_the_run_at_its_bound() -> None:
    run = workflow_bench(
        """
        steps: 10
        state: {tries: 0}
        nodes:
          begin: {type: start, next: count}
          count: {type: state, set: {tries: state.tries + 1}, next: enough}
          enough: {type: condition, branches: [{when: state.tries < 0, next: done}], else: count}
          done: {type: end}
        """
    )
    with pytest.raises(ExceptionGroup) as caught:
        await run.run()
    (error,) = caught.value.exceptions
    assert isinstance(error, StepLimitReached)
    assert "10 nodes" in error.message
    assert error.reason == "WORKFLOW_STEP_LIMIT"


async def test_a_failing_node_names_itself_and_its_own_error() -> None:
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: find}
          find: {type: tool, title: Look it up, tool: look, arguments: {query: x}, next: done}
          done: {type: end}
        """,
        failing(9),
    )
    with pytest.raises(ExceptionGroup) as caught:
        await run.run()
    (error,) = caught.value.exceptions
    assert isinstance(error, WorkflowNodeFailed)
    assert error.message == "node 'find' (Look it up) failed: no luck"
    assert error.metadata == {"node": "find"}
    assert run.stand.journal.of(StepFinished)[-1].failed


async def test_a_value_that_is_missing_when_it_runs_fails_its_node() -> None:
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: find}
          find: {type: tool, tool: look, arguments: {query: x}, next: done}
          done: {type: end, output: "{{ nodes.find.value.price }}"}
        """,
        looking("no JSON"),
    )
    with pytest.raises(ExceptionGroup) as caught:
        await run.run()
    assert "node 'done' failed: '{{ nodes.find.value.price }}'" in str(caught.value.exceptions[0])


async def test_an_error_leads_where_the_node_says() -> None:
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: find}
          find: {type: tool, tool: look, arguments: {query: x}, next: done, on_error: sorry}
          done: {type: end, output: found}
          sorry: {type: end, output: "Sorry: {{ nodes.find.error }}"}
        """,
        failing(9),
    )
    assert await run.answer() == "Sorry: no luck"


async def test_an_end_can_say_that_the_run_failed() -> None:
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: done}
          done: {type: end, fail: "{{ input }} is not for me"}
        """
    )
    with pytest.raises(ExceptionGroup) as caught:
        await run.run()
    assert "node 'done' failed: Why? is not for me" in str(caught.value.exceptions[0])


async def test_a_node_is_tried_again_as_often_as_it_says_each_try_a_call_of_its_own() -> None:
    look = failing(2)
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: find}
          find:
            type: tool
            tool: look
            arguments: {query: x}
            retry: {attempts: 3, wait_seconds: 1.5}
            next: done
          done: {type: end, output: "{{ nodes.find.text }}"}
        """,
        look,
    )
    assert await run.answer() == "seen"
    assert run.waits == [1.5, 3.0]
    assert [e.call.call_id for e in run.stand.journal.of(ToolCallProposed)] == ["find-1", "find-2", "find-3"]
    assert [e.code for e in run.stand.journal.of(Notice)] == ["node_retried", "node_retried"]


async def test_a_node_that_takes_too_long_is_stopped_and_its_effect_is_told_as_unknown() -> None:
    stopped: list[bool] = []

    async def forever(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)
        raise AssertionError

    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: find}
          find: {type: tool, tool: look, arguments: {query: x}, timeout_seconds: 0.05, next: done, on_error: done}
          done: {type: end, output: "{{ nodes.find.error }}"}
        """,
        FakeTool(name="look", work=forever, effect=Effect.SIDE_EFFECT),
    )
    assert await run.answer() == "it did not finish within 0.05 s"
    assert stopped == [True]
    assert run.stand.statuses() == {"find-1": "OUTCOME_UNKNOWN"}


async def test_branches_run_side_by_side_and_meet_at_the_join() -> None:
    both = asyncio.Barrier(2)

    async def meeting(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        await both.wait()
        return ToolResult(text=f"<{arguments['query']}>")

    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: fork}
          fork: {type: parallel, branches: [left, right], join: done}
          left: {type: tool, tool: look, arguments: {query: l}, next: done}
          right: {type: tool, tool: look, arguments: {query: r}, next: after}
          after: {type: note, text: right is there, next: done}
          done: {type: end, output: "{{ nodes.left.text }}{{ nodes.right.text }}"}
        """,
        FakeTool(name="look", work=meeting),
    )
    assert await run.answer() == "<l><r>"
    assert run.started().count("done") == 1


async def test_branches_inside_branches_meet_before_the_outer_join() -> None:
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: outer}
          outer: {type: parallel, branches: [inner, other], join: done}
          inner: {type: parallel, branches: [a, b], join: both}
          a: {type: tool, tool: look, arguments: {query: a}, next: both}
          b: {type: tool, tool: look, arguments: {query: b}, next: both}
          both: {type: note, text: "{{ nodes.a.text }}{{ nodes.b.text }}", next: done}
          other: {type: tool, tool: look, arguments: {query: c}, next: done}
          done: {type: end, output: "{{ nodes.both.text }} {{ nodes.other.text }}"}
        """,
        looking("x"),
    )
    assert await run.answer() == "xx x"


async def test_an_agent_answers_in_a_branch_of_its_own_with_the_tools_that_the_node_gives_it() -> None:
    look = looking("the sky is blue")
    model = ScriptedModel([reply("", tool_call("c1", "look", query="sky")), reply("Blue.")])
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: think}
          think: {type: agent, prompt: "Say it short: {{ input }}", tools: [look], next: done}
          done: {type: end, output: "Answer: {{ nodes.think.text }}"}
        """,
        look,
        model=model,
    )
    assert await run.answer() == "Answer: Blue."
    assert messages_of(model, 0)[-1].text == "Say it short: Why?"
    assert [tool.name for tool in model.requests[0].tools] == ["look"]
    shown = run.stand.journal.of(AnswerDelta)
    assert [event.text for event in shown] == ["Blue.", "Answer: Blue."]


async def test_an_agent_of_the_suite_works_with_its_own_tools_and_a_value_of_a_schema_is_read_as_such() -> None:
    model = ScriptedModel([replace(reply('{"score": 7}'), value_json=b'{"score":7}')])
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: judge}
          judge: {type: agent, agent: critic, output: {type: object}, next: high}
          high: {type: condition, branches: [{when: nodes.judge.value.score > 5, next: done}], else: bad}
          done: {type: end, value: {score: "= nodes.judge.value.score + 1"}}
          bad: {type: end, fail: too low}
        """,
        looking(),
        model=model,
        agents={"critic": Agent(agent_id="critic", name="critic", model="big", tools=(ToolBinding(tool="look"),))},
    )
    _, answer = await run.run()
    assert answer is not None
    assert (answer.text, answer.value_json) == ('{"score":8}', b'{"score":8}')
    assert model.requests[0].model == "big"
    assert [tool.name for tool in model.requests[0].tools] == ["look"]


async def test_the_policy_of_the_workflows_agent_holds_for_its_nodes() -> None:
    look = looking()
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: find}
          find: {type: tool, tool: look, arguments: {query: x}, next: done, on_error: done}
          done: {type: end, output: "{{ nodes.find.error }}"}
        """,
        look,
        bindings=(ToolBinding(tool="look", policy=ToolPolicy.DENY),),
    )
    run.stand.approvals.verdict = run.stand.approvals.verdict.DENY
    assert "refuses 'look'" in await run.answer()
    assert look.executions == []


async def test_calls_of_nodes_are_counted_and_capped_like_a_models() -> None:
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: one}
          one: {type: tool, tool: look, arguments: {query: x}, next: two}
          two: {type: tool, tool: look, arguments: {query: y}, next: done, on_error: done}
          done: {type: end, output: "{{ nodes.two.error }}"}
        """,
        looking(),
        budget=Budget(tool_calls=1),
    )
    assert "limit of 1 tool calls" in await run.answer()
    assert run.leg.progress.spent.tool_calls == 1


async def test_a_tool_that_does_not_exist_any_more_fails_its_node() -> None:
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: find}
          find: {type: tool, tool: gone, next: done, on_error: done}
          done: {type: end, output: "{{ nodes.find.error }}"}
        """
    )
    assert await run.answer() == "there is no tool 'gone'"


PARAMETERS = """
parameters:
  type: object
  properties: {city: {type: string}, days: {type: integer, default: 2}}
  required: [city]
  additionalProperties: false
nodes:
  begin: {type: start, next: done}
  done: {type: end, output: "{{ args.city }} for {{ args.days }}"}
"""


async def test_parameters_come_as_json_in_the_message_and_are_checked() -> None:
    assert await workflow_bench(PARAMETERS, question='{"city": "Rome", "days": 3}').answer() == "Rome for 3"
    assert await workflow_bench(PARAMETERS, question='{"city": "Rome"}').answer() == "Rome for 2"
    for wrong in ("Rome", '{"city": 5}', '{"town": "Rome"}'):
        with pytest.raises(InvalidRequest, match="takes a JSON object"):
            await workflow_bench(PARAMETERS, question=wrong).run()


async def test_the_message_itself_is_the_only_parameter_when_there_is_one() -> None:
    text = PARAMETERS.replace(", days: {type: integer, default: 2}", "").replace(" for {{ args.days }}", "")
    assert await workflow_bench(text, question="Rome").answer() == "Rome"


async def test_each_node_is_told_with_its_kind_and_title() -> None:
    run = workflow_bench(
        """
        nodes:
          begin: {type: start, title: Go, next: done}
          done: {type: end}
        """
    )
    await run.answer()
    assert [(e.step_id, e.title, e.kind) for e in run.stand.journal.of(StepStarted)] == [
        ("begin", "Go", "start"),
        ("done", "done", "end"),
    ]


async def test_the_form_that_a_run_asks_for_is_held() -> None:
    text = """
        nodes:
          begin: {type: start, next: done}
          done: {type: end, value: {n: "= 1 + 1"}}
        """
    schema = OutputFormat(json_schema=b'{"type":"object","properties":{"n":{"type":"integer"}}}')
    _, answer = await workflow_bench(text, output=schema).run()
    assert answer is not None
    assert answer.value_json == b'{"n":2}'
    wrong = OutputFormat(json_schema=b'{"type":"object","properties":{"n":{"type":"string"}}}')
    with pytest.raises(OutputMisses, match=r"at \$\.n"):
        await workflow_bench(text, output=wrong).run()
    plain = text.replace('value: {n: "= 1 + 1"}', "output: two")
    with pytest.raises(OutputMisses, match="give its end a 'value'"):
        await workflow_bench(plain, output=OutputFormat(json_mode=True)).run()


async def test_what_doubles_in_a_loop_ends_at_a_size() -> None:
    run = workflow_bench(
        """
        state: {text: "0123456789"}
        nodes:
          begin: {type: start, next: double}
          double: {type: state, set: {text: state.text + state.text}, next: more, on_error: done}
          more: {type: condition, branches: [{when: size(state.text) < 0, next: done}], else: double}
          done: {type: end, output: "{{ nodes.double.error }}"}
        """
    )
    assert "the limit is 65536" in await run.answer()


async def test_when_a_branch_fails_the_others_are_given_up_and_told() -> None:
    begun = asyncio.Event()

    async def slow(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def breaking(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        await begun.wait()
        return ToolResult(text="broken", failed=True)

    run = workflow_bench(
        """
        nodes:
          begin: {type: start, next: fork}
          fork: {type: parallel, branches: [left, right], join: done}
          left: {type: tool, tool: act, arguments: {query: x}, next: done}
          right: {type: tool, tool: look, arguments: {query: x}, next: done}
          done: {type: end}
        """,
        FakeTool(name="act", work=slow, effect=Effect.SIDE_EFFECT),
        FakeTool(name="look", work=breaking),
    )
    with pytest.raises(ExceptionGroup) as caught:
        await run.run()
    assert "node 'right' failed: broken" in str(caught.value.exceptions[0])
    assert run.stand.statuses() == {"left-1": "OUTCOME_UNKNOWN", "right-1": "FAILED"}
    told = {event.step_id: event.failed for event in run.stand.journal.of(StepFinished)}
    assert told == {"begin": False, "fork": False, "left": True, "right": True}
    assert run.leg.progress.branches == {}


async def test_a_workflow_that_only_computes_lets_others_have_their_turn() -> None:
    run = workflow_bench(
        """
        steps: 400
        state: {n: 0}
        nodes:
          begin: {type: start, next: count}
          count: {type: state, set: {n: state.n + 1}, next: enough}
          enough: {type: condition, branches: [{when: state.n > 150, next: done}], else: count}
          done: {type: end, output: "{{ state.n }}"}
        """
    )
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    assert await run.answer() == "151"
    beside.cancel()
    assert turns > 150


def guards(check: Check) -> Guards:
    stages = frozenset({Stage.OUTPUT})
    return Guards([Guardrail(name="house", check=check, stages=stages, fail=FailMode.CLOSED)])


ECHO = """
nodes:
  begin: {type: start, next: look}
  look: {type: tool, tool: look, arguments: {query: x}, next: done}
  done: {type: end, OUTPUT}
"""


async def test_what_a_tool_said_passes_the_guardrails_before_it_is_the_answer() -> None:
    refusing = Patterns([re.compile("secret")], "it names a secret")
    text = ECHO.replace("OUTPUT", 'output: "{{ nodes.look.text }}"')
    run = workflow_bench(text, looking("the secret is 7"), guards=guards(refusing))
    answer = await run.answer()
    assert "7" not in answer
    assert "it names a secret" in answer
    assert [e.text for e in run.stand.journal.of(AnswerDelta)] == [answer]
    assert "guardrail" in {notice.code for notice in run.stand.journal.of(Notice)}
    assert await workflow_bench(text, looking("all well"), guards=guards(refusing)).answer() == "all well"


async def test_a_value_goes_with_the_text_that_a_guardrail_changed() -> None:
    class Masking:
        async def judge(self, text: str, stage: Stage, tenant: str) -> Checked:
            return Checked(text=text.replace("7", "*"), changes=("numbers",))

    text = ECHO.replace("OUTPUT", 'value: {said: "{{ nodes.look.text }}"}')
    _, answer = await workflow_bench(text, looking("it is 7"), guards=guards(Masking())).run()
    assert answer is not None
    assert (answer.text, answer.value_json) == ('{"said":"it is *"}', b"")


MODELS = """
nodes:
  begin: {type: start, next: think}
  think: {type: agent, MODEL next: done, on_error: done}
  done: {type: end, output: "{{ nodes.think.error or nodes.think.text }}"}
"""


async def test_a_node_works_with_the_model_of_the_run_unless_it_names_one_that_the_user_may_use() -> None:
    model = ScriptedModel([reply("One."), reply("Two.")])
    await workflow_bench(MODELS.replace("MODEL", ""), model=model).answer()
    await workflow_bench(MODELS.replace("MODEL", "model: anns-own,"), model=model).answer()
    assert [request.model for request in model.requests] == ["m1", "anns-own"]
    run = workflow_bench(MODELS.replace("MODEL", "model: anns-own,"), model=model)
    run.leg.spec = replace(run.leg.spec, principal=replace(run.leg.spec.principal, user="bob"))
    assert (await run.answer()).startswith("MODEL_NOT_FOUND: model 'anns-own' is not in the catalogue")
    assert len(model.requests) == 2
