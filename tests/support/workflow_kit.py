"""Workflows on the bench: the engine with scripted models, tools and people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from services.chassis.identity import Principal
from services.orchestrator.agents.ports import AgentNotFound
from services.orchestrator.continuation import decode, encode
from services.orchestrator.domain.agent import Agent, AgentType, ToolBinding
from services.orchestrator.domain.events import StepFinished, StepStarted
from services.orchestrator.domain.messages import Role, text_message
from services.orchestrator.domain.state import Phase
from services.orchestrator.guardrails.guards import Guards
from services.orchestrator.leg import Leg
from services.orchestrator.loop import Loop, LoopEnd
from services.orchestrator.models.errors import ModelNotFound
from services.orchestrator.models.ports import ModelInfo, ModelReply
from services.orchestrator.offer import Offers
from services.orchestrator.strategies.ports import Strategy
from services.orchestrator.strategies.workflow.agents import AgentNodes
from services.orchestrator.strategies.workflow.calls import Calls
from services.orchestrator.strategies.workflow.nodes import Nodes
from services.orchestrator.strategies.workflow.strategy import WorkflowStrategy
from services.orchestrator.tools.ask_user import AskUserTool
from services.orchestrator.tools.ports import Tool, Toolbox
from services.orchestrator.tools.request_approval import RequestApprovalTool
from services.orchestrator.workflow.validate import validate
from tests.support.orchestrator_kit import START, Bench, FakeCatalogue, ScriptedModel, bench


@dataclass
class Unprepared:
    """Agents without a preparer: their prompt is what the node gives them."""

    loop: Loop

    async def run(self, leg: Leg) -> tuple[LoopEnd, ModelReply | None]:
        if leg.progress.phase is Phase.PREPARE:
            leg.progress.phase = Phase.ROUND_START
        return await self.loop.run(leg)


@dataclass
class FakePersonalCatalogue(FakeCatalogue):
    """Models for everybody but those called "anns", which are hers alone."""

    def get_for(self, model_id: str, principal: Principal) -> ModelInfo:
        if model_id.startswith("anns") and principal.user != "ann":
            raise ModelNotFound(model_id)
        return self.get(model_id)


@dataclass
class FakeAgents:
    """Agents by name."""

    agents: dict[str, Agent] = field(default_factory=dict)

    async def get(self, principal: Principal, agent_id: str) -> Agent:
        if agent_id not in self.agents:
            raise AgentNotFound(f"there is no agent '{agent_id}'")
        return self.agents[agent_id]


@dataclass
class WorkflowBench:
    """A run of a workflow, with everything around it."""

    stand: Bench
    strategy: Strategy
    waits: list[float]

    @property
    def leg(self) -> Leg:
        return self.stand.leg

    async def run(self) -> tuple[LoopEnd, ModelReply | None]:
        """Lead the next leg."""
        return await self.strategy.run(self.leg)

    async def answer(self) -> str:
        """Lead the run to its end and return the answer."""
        end, _ = await self.run()
        assert end is LoopEnd.ANSWERED, end
        return self.leg.progress.answer

    def restart(self) -> None:
        """Lose the process: what goes on is what the checkpoints hold."""
        segments: dict[bytes, bytes] = {}
        head = b""
        for checkpoint in self.stand.journal.checkpoints:
            segments |= {segment.digest: segment.content for segment in checkpoint.new_segments}
            head = checkpoint.head
        _, self.leg.progress = decode(head, segments)

    def pause(self) -> None:
        """Save as the runner does when every thread waits, and restart."""
        self.stand.journal.checkpoints.append(encode(self.leg.spec, self.leg.progress, START))
        self.restart()

    def started(self) -> list[str]:
        """Return the ids of the steps in the order in which they began."""
        return [event.step_id for event in self.stand.journal.of(StepStarted)]

    def finished(self) -> dict[str, str]:
        """Return what was told of each step that ended."""
        return {event.step_id: event.summary for event in self.stand.journal.of(StepFinished)}


def workflow_bench(
    workflow_yaml: str,
    *tools: Tool,
    replies: Sequence[ModelReply] = (),
    question: str = "Why?",
    agents: dict[str, Agent] | None = None,
    bindings: tuple[ToolBinding, ...] = (),
    model: ScriptedModel | None = None,
    guards: Guards | None = None,
    **spec: Any,
) -> WorkflowBench:
    """Return a run of `workflow_yaml` before its first node; the workflow must be one that may be saved."""
    assert not validate(workflow_yaml), validate(workflow_yaml)
    everything = (*tools, RequestApprovalTool(), AskUserTool())
    stand = bench(*everything, **spec)
    leg = stand.leg
    agent = Agent(agent_id="flow", name="flow", type=AgentType.WORKFLOW, workflow_yaml=workflow_yaml, tools=bindings)
    leg.spec = replace(leg.spec, agent=agent, tools=())
    leg.progress.messages, leg.progress.turn_start = [text_message(Role.USER, question)], 0
    leg.progress.phase, leg.progress.next_call_id = Phase.PREPARE, "mc-first"
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    toolbox = Toolbox(everything)
    direct = Unprepared(stand.loop(model or ScriptedModel(list(replies))))
    strategies: dict[AgentType, Strategy] = dict.fromkeys(AgentType, direct)
    calls = Calls(toolbox, stand.gate)
    nodes = Nodes(
        AgentNodes(FakeAgents(agents or {}), Offers(toolbox, 100), calls, FakePersonalCatalogue(), strategies), calls
    )
    strategies[AgentType.WORKFLOW] = WorkflowStrategy(nodes, calls, guards or Guards(()), sleep)
    return WorkflowBench(stand=stand, strategy=strategies[AgentType.WORKFLOW], waits=waits)
