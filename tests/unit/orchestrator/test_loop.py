"""Rounds: what each sends, how they end, what closes them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from services.orchestrator.domain.events import AnswerDelta, ModelCallFinished, Notice, ToolCallProposed
from services.orchestrator.domain.messages import Budget, OutputFormat, Role, Sampling, ToolSpec, Usage
from services.orchestrator.domain.state import Phase
from services.orchestrator.loop import LoopEnd
from services.orchestrator.ports import RecordState
from services.orchestrator.tools.ports import Consent
from tests.support.orchestrator_kit import FakeTool, ScriptedModel, answering, bench, messages_of, reply, tool_call


async def test_an_answer_ends_the_loop() -> None:
    b = bench()
    end, last = await b.loop(ScriptedModel([reply("Because.")])).run(b.leg)
    assert end is LoopEnd.ANSWERED
    assert last is not None
    assert b.leg.progress.answer == "Because."
    assert len(b.journal.of(ModelCallFinished)) == 1


async def test_the_second_round_reads_the_results_and_sends_the_same_parameters() -> None:
    form = OutputFormat(json_schema=b'{"type":"object"}')
    sampling = Sampling(temperature=0.2, max_output_tokens=77)
    b = bench(FakeTool("search", answering("the sky")), sampling=sampling, output=form)
    model = ScriptedModel([reply("", tool_call("c1", "search", query="x")), reply("Blue.")])
    await b.loop(model).run(b.leg)
    first, second = model.requests
    assert (second.sampling, second.output, second.tools) == (first.sampling, first.output, first.tools)
    assert second.sampling.temperature == 0.2
    assert [m.role for m in second.messages[-2:]] == [Role.ASSISTANT, Role.TOOL]
    assert second.messages[-1].text == "the sky"


async def test_results_stand_in_the_order_of_their_calls() -> None:
    b = bench(FakeTool("search", answering("ok")))
    calls = [tool_call(f"c{i}", "search", query=str(i)) for i in range(3)]
    model = ScriptedModel([reply("", *calls), reply("Done.")])
    await b.loop(model).run(b.leg)
    assert [m.tool_call_id for m in messages_of(model, 1)[-3:]] == ["c0", "c1", "c2"]


async def test_the_reply_is_saved_before_any_of_its_calls_runs() -> None:
    saved: list[int] = []
    b = bench()

    async def work(arguments: object, context: object) -> object:
        saved.append(len(b.journal.checkpoints))
        return await answering("ok")({}, None)  # type: ignore[arg-type]

    tool = FakeTool("search", work)  # type: ignore[arg-type]
    b = bench(tool)
    await b.loop(ScriptedModel([reply("", tool_call("c1", "search", query="x")), reply("Done.")])).run(b.leg)
    assert saved == [1]
    assert len(b.journal.of(ToolCallProposed)) == 1


async def test_a_cap_of_calls_ends_in_an_answer_without_tools() -> None:
    tool = FakeTool("search", answering("ok"))
    b = bench(tool, budget=Budget(rounds=25, tool_calls=1))
    model = ScriptedModel([reply("", tool_call("c1", "search", query="x")), reply("From what I have.")])
    end, _ = await b.loop(model).run(b.leg)
    assert end is LoopEnd.ANSWERED
    assert len(tool.executions) == 1
    assert model.requests[1].tools == ()
    assert "limit of 1 tool calls" in messages_of(model, 1)[-1].text
    assert [n.code for n in b.journal.of(Notice)] == ["budget_cut"]


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(rounds=1), "limit of 1 rounds"),
        (Budget(tokens=12), "limit of 12 tokens"),
        (Budget(cost_micros=5), "of cost"),
    ],
)
async def test_rounds_tokens_and_cost_are_caps_too(budget: Budget, reason: str) -> None:
    b = bench(FakeTool("search", answering("ok")), budget=budget)
    spent = Usage(input_tokens=10, output_tokens=5, cost_micros=6)
    model = ScriptedModel([reply("", tool_call("c1", "search", query="x"), usage=spent), reply("Short.")])
    await b.loop(model).run(b.leg)
    assert reason in messages_of(model, 1)[-1].text


async def test_working_time_is_a_cap_and_waiting_for_people_is_not_counted() -> None:
    b = bench(FakeTool("search", answering("ok")), budget=Budget(wall_time=timedelta(seconds=60)))
    b.clock.advance(61)
    model = ScriptedModel([reply("Late.")])
    await b.loop(model).run(b.leg)
    assert "working time" in messages_of(model, 0)[-1].text


async def test_a_run_without_tools_is_not_cut_by_a_cap_of_zero_calls() -> None:
    b = bench(budget=Budget(rounds=25, tool_calls=0))
    await b.loop(ScriptedModel([reply("Yes.")])).run(b.leg)
    assert b.journal.of(Notice) == []


async def test_a_silent_reply_is_asked_once_more_then_closed_without_tools() -> None:
    b = bench(FakeTool("search", answering("ok")))
    model = ScriptedModel([reply("", reasoning="hm"), reply("", reasoning="hm"), reply("At last.")])
    end, _ = await b.loop(model).run(b.leg)
    assert end is LoopEnd.ANSWERED
    assert [bool(r.tools) for r in model.requests] == [True, True, False]
    assert "no answer and no tool call" in messages_of(model, 1)[-1].text
    assert b.leg.progress.answer == "At last."


async def test_a_model_that_invents_tools_is_closed_not_looped() -> None:
    b = bench(FakeTool("search", answering("ok")))
    invented = [reply("", tool_call(f"c{i}", "nope", query="x")) for i in range(3)]
    model = ScriptedModel([*invented, reply("Without tools.")])
    await b.loop(model).run(b.leg)
    assert model.requests[-1].tools == ()


async def test_text_of_several_rounds_is_one_answer_and_equals_the_deltas() -> None:
    b = bench(FakeTool("search", answering("ok")))
    model = ScriptedModel([reply("Let me look.", tool_call("c1", "search", query="x")), reply("It is blue.")])
    await b.loop(model).run(b.leg)
    assert b.leg.progress.answer == "Let me look.\n\nIt is blue."
    assert "".join(d.text for d in b.journal.of(AnswerDelta)) == b.leg.progress.answer


async def test_a_gated_call_makes_the_loop_wait_and_it_goes_on_from_there() -> None:
    tool = FakeTool("run_code", answering("42"), consent=Consent.ASK)
    b = bench(tool)
    model = ScriptedModel([reply("", tool_call("c1", "run_code", query="x")), reply("It is 42.")])
    loop = b.loop(model)
    end, _ = await loop.run(b.leg)
    assert (end, b.leg.progress.phase) == (LoopEnd.WAITING, Phase.CALLS)
    b.approvals.settle("c1", RecordState.APPROVED)
    end, _ = await loop.run(b.leg)
    assert (end, b.leg.progress.answer) == (LoopEnd.ANSWERED, "It is 42.")
    assert b.leg.progress.spent.rounds == 2


async def test_callers_tools_may_end_the_run() -> None:
    theirs = ToolSpec(name="theirs", description="", parameters_json=b'{"type":"object"}', client_side=True)
    b = bench(client_tools=(theirs,), client_tools_end_run=True)
    end, _ = await b.loop(ScriptedModel([reply("", tool_call("c1", "theirs"))])).run(b.leg)
    assert end is LoopEnd.CALLER_TOOLS
    assert b.approvals.requests == []


async def test_an_approval_beside_the_callers_tools_is_waited_for_first() -> None:
    gated = FakeTool("run_code", answering("42"), consent=Consent.ASK)
    theirs = ToolSpec(name="theirs", description="", parameters_json=b'{"type":"object"}', client_side=True)
    b = bench(gated, client_tools=(theirs,), client_tools_end_run=True)
    loop = b.loop(ScriptedModel([reply("", tool_call("c1", "run_code", query="x"), tool_call("c2", "theirs"))]))
    end, _ = await loop.run(b.leg)
    assert end is LoopEnd.WAITING
    b.approvals.settle("c1", RecordState.APPROVED)
    end, _ = await loop.run(b.leg)
    assert end is LoopEnd.CALLER_TOOLS
    assert b.results() == {"c1": "42"}
    assert [request.call_id for request in b.approvals.requests] == ["c1"]
