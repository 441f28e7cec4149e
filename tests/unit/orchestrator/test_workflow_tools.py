"""Workflows as tools of other agents: called with arguments, paused inside, their output the answer if they say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from services.chassis.identity import Principal
from services.orchestrator.agents.ports import AgentNotFound
from services.orchestrator.domain.agent import Agent, AgentType
from services.orchestrator.domain.events import AnswerDelta, ToolCallStarted
from services.orchestrator.domain.messages import Role, text_message
from services.orchestrator.domain.state import Phase
from services.orchestrator.loop import LoopEnd
from services.orchestrator.ports import RecordState
from services.orchestrator.strategies.agent_tools import WorkflowTool, WorkflowTools
from services.orchestrator.strategies.workflow.calls import Calls
from services.orchestrator.tools.ports import Consent, Effect, Toolbox
from services.orchestrator.workflow.validate import checked
from tests.support.orchestrator_kit import ANN, FakeTool, ScriptedModel, answering, reply, tool_call
from tests.support.workflow_kit import WorkflowBench, workflow_bench

WEATHER = """
description: Tells the weather of a city.
parameters:
  type: object
  properties: {city: {type: string}}
  required: [city]
  additionalProperties: false
nodes:
  begin: {type: start, next: done}
  done: {type: end, output: "Rain in {{ args.city }}."}
"""
ACTING = """
nodes:
  begin: {type: start, next: act}
  act: {type: tool, tool: act, arguments: {query: "{{ input }}"}, next: done}
  done: {type: end, output: "{{ nodes.act.text }}!"}
"""


@dataclass
class Kept:
    """Agents that are kept."""

    agents: dict[str, Agent] = field(default_factory=dict)

    async def get(self, principal: Principal, agent_id: str) -> Agent:
        if agent_id not in self.agents:
            raise AgentNotFound(f"there is no agent '{agent_id}'")
        return self.agents[agent_id]

    async def list(self, principal: Principal) -> Sequence[Agent]:
        return list(self.agents.values())


@dataclass
class Caller:
    """An agentic run whose model may call workflows."""

    bench: WorkflowBench
    tools: WorkflowTools
    model: ScriptedModel

    async def run(self) -> LoopEnd:
        end, _ = await self.bench.stand.loop(self.model).run(self.bench.leg)
        return end


def agent(name: str, text: str) -> Agent:
    return Agent(agent_id=name, name=name, type=AgentType.WORKFLOW, workflow_yaml=text)


def caller(model: ScriptedModel, *tools: FakeTool, **workflows: str) -> Caller:
    bench = workflow_bench(ACTING, *tools, model=model)
    gate = bench.stand.gate
    kept = Kept({name: agent(name, text) for name, text in workflows.items()})
    strategy = bench.strategy
    provider = WorkflowTools(kept, kept, (), strategy, Calls(gate._tools, gate))
    gate._tools.provide(provider)
    leg = bench.leg
    specs = [
        WorkflowTool(
            agent=a, workflow=checked(a.workflow_yaml), strategy=strategy, calls=Calls(gate._tools, gate)
        ).definition.spec
        for a in kept.agents.values()
    ]
    leg.spec = replace(leg.spec, agent=Agent(agent_id="a", name="a"), tools=tuple(specs))
    leg.progress.messages = [text_message(Role.SYSTEM, "You are a test."), text_message(Role.USER, "Why?")]
    leg.progress.turn_start, leg.progress.phase = 1, Phase.ROUND_START
    return Caller(bench=bench, tools=provider, model=model)


def acting() -> FakeTool:
    return FakeTool(name="act", work=answering("acted"), consent=Consent.ASK, effect=Effect.SIDE_EFFECT)


async def test_a_workflow_is_called_with_its_parameters_and_its_output_is_the_result() -> None:
    model = ScriptedModel([reply("", tool_call("c1", "weather", city="Rome")), reply("It rains.")])
    run = caller(model, weather=WEATHER)
    assert await run.run() is LoopEnd.ANSWERED
    assert model.requests[0].tools[0].description == "Tells the weather of a city."
    assert [m.text for m in model.requests[1].messages if m.tool_call_id] == ["Rain in Rome."]
    assert run.bench.started() == ["c1.begin", "c1.done"]
    assert run.bench.leg.progress.branches == {}
    shown = [event.text for event in run.bench.stand.journal.of(AnswerDelta)]
    assert shown == ["Rain in Rome.", "It rains."]
    assert run.bench.leg.progress.answer == "It rains."


async def test_arguments_that_do_not_fit_its_parameters_are_refused_before_it_begins() -> None:
    model = ScriptedModel([reply("", tool_call("c1", "weather", town="Rome")), reply("Sorry.")])
    run = caller(model, weather=WEATHER)
    await run.run()
    assert run.bench.stand.statuses() == {"c1": "INVALID"}
    assert run.bench.started() == []


async def test_the_output_of_a_direct_one_is_the_answer_without_another_model_call() -> None:
    model = ScriptedModel([reply("", tool_call("c1", "weather", city="Rome"))])
    run = caller(model, weather=f"direct_output: true{WEATHER}")
    assert await run.run() is LoopEnd.ANSWERED
    assert run.bench.leg.progress.answer == "Rain in Rome."
    assert run.bench.leg.progress.messages[-1].text == "Rain in Rome."
    assert len(model.requests) == 1


async def test_a_node_inside_asks_before_it_acts_and_the_call_goes_on_after_a_restart() -> None:
    act = acting()
    model = ScriptedModel([reply("", tool_call("c1", "doing", input="x"))])
    run = caller(model, act, doing=ACTING)
    assert await run.run() is LoopEnd.WAITING
    run.bench.pause()
    assert [call.call_id for call in run.bench.leg.progress.pending_calls()] == ["c1-act-1"]
    assert act.executions == []
    run.bench.stand.approvals.settle("c1-act-1", RecordState.APPROVED)
    model.replies.append(reply("Done."))
    assert await run.run() is LoopEnd.ANSWERED
    assert act.executions == [{"query": "x"}]
    assert [m.text for m in model.requests[1].messages if m.tool_call_id] == ["acted!"]
    assert [e.call_id for e in run.bench.stand.journal.of(ToolCallStarted)] == ["c1", "c1-act-1"]


async def test_its_failure_is_a_result_that_the_model_reads() -> None:
    act = acting()
    model = ScriptedModel([reply("", tool_call("c1", "doing", input="x"))])
    run = caller(model, act, doing=ACTING)
    await run.run()
    run.bench.pause()
    run.bench.stand.approvals.settle("c1-act-1", RecordState.DENIED)
    model.replies.append(reply("They refused."))
    assert await run.run() is LoopEnd.ANSWERED
    (told,) = [m.text for m in model.requests[1].messages if m.tool_call_id]
    assert told.startswith("'doing' failed: node 'act' failed: A person refused")
    assert run.bench.leg.progress.branches == {}
    assert act.executions == []


async def test_only_workflows_that_an_agent_names_are_offered() -> None:
    run = caller(ScriptedModel([]), weather=WEATHER, doing=ACTING)
    assert (await run.tools.tools(ANN, ())).tools == ()
    found = await run.tools.tools(ANN, ("weather", "search", "files__*"))
    assert [tool.definition.name for tool in found.tools] == ["weather"]
    everything = await run.tools.everything(ANN)
    assert sorted(tool.definition.name for tool in everything) == ["doing", "weather"]
    assert await run.tools.find(ANN, "nothing") is None


async def test_a_step_may_call_a_workflow_too() -> None:
    model = ScriptedModel([])
    run = caller(model, weather=WEATHER)
    outer = """
nodes:
  begin: {type: start, next: look}
  look: {type: tool, tool: weather, arguments: {city: Rome}, next: done}
  done: {type: end, output: "{{ nodes.look.text }}"}
"""
    leg = run.bench.leg
    leg.spec = replace(leg.spec, agent=agent("outer", outer), tools=())
    leg.progress.phase = Phase.PREPARE
    toolbox = run.bench.stand.gate._tools
    assert isinstance(toolbox, Toolbox)
    run.bench.strategy._calls._toolbox.provide(run.tools)  # type: ignore[attr-defined]
    assert await run.bench.answer() == "Rain in Rome."


@pytest.mark.parametrize("name", ["two words", "x" * 65])
async def test_an_agent_whose_name_no_model_could_call_is_no_tool(name: str) -> None:
    run = caller(ScriptedModel([]))
    kept = Kept({name: agent(name, WEATHER)})
    tools = WorkflowTools(
        kept, kept, (agent(name, WEATHER),), run.bench.strategy, Calls(Toolbox(()), run.bench.stand.gate)
    )
    assert await tools.find(ANN, name) is None
    assert (await tools.tools(ANN, ())).tools == ()
    assert await tools.everything(ANN) == []
