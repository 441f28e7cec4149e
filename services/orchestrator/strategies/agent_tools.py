"""Workflows as tools of other agents: they work in a branch of the run that calls them, and pause with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from services.chassis.canonical import canonical_json
from services.chassis.errors import ServiceError
from services.chassis.identity import Principal
from services.orchestrator.agents.ports import AgentNotFound
from services.orchestrator.domain.agent import Agent, AgentType
from services.orchestrator.domain.messages import OutputFormat, Role, ToolSpec, text_message
from services.orchestrator.domain.run import Fenced, OnRetraction, RunCancelRequested
from services.orchestrator.domain.state import Phase, RunSpec
from services.orchestrator.leg import Leg
from services.orchestrator.loop import LoopEnd
from services.orchestrator.strategies.ports import Strategy
from services.orchestrator.strategies.workflow.agents import MAX_DEPTH, AgentsByName
from services.orchestrator.strategies.workflow.calls import Calls, forget
from services.orchestrator.tools.ports import Consent, Effect, Provided, Tool, ToolContext, ToolDefinition, ToolResult
from services.orchestrator.workflow.graph import Workflow
from services.orchestrator.workflow.validate import checked

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
# What a workflow without parameters takes.
_INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "What it is to work on."}},
    "required": ["input"],
    "additionalProperties": False,
}


class AgentsThere(Protocol):
    """All agents that a principal may use."""

    async def list(self, principal: Principal) -> Sequence[Agent]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowTool:
    """One workflow as a tool. Its nodes ask for what they do; calling it asks nobody."""

    agent: Agent
    workflow: Workflow
    strategy: Strategy
    calls: Calls

    @property
    def definition(self) -> ToolDefinition:
        """What the workflow says of itself. It may be called again after a crash: its own position is saved."""
        return ToolDefinition(
            spec=ToolSpec(
                name=self.agent.name,
                description=self.workflow.description or self.agent.description or f"Runs '{self.agent.name}'.",
                parameters_json=canonical_json(dict(self.workflow.parameters) or _INPUT),
            ),
            title=self.agent.name,
            effect=Effect.IDEMPOTENT,
            consent=Consent.ALLOW,
            repeatable=True,
            bound_only=True,
            direct_output=self.workflow.direct_output,
        )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Never called: a workflow is led, not run."""
        raise AssertionError("a workflow is led in a branch of its caller")

    async def lead(self, leg: Leg, call_id: str, arguments: Mapping[str, Any]) -> ToolResult | None:
        """Lead it in a branch of the caller's leg; None when it waits for people."""
        name = _OTHER.sub("_", call_id)
        path = f"{leg.step_id}.{name}" if leg.step_id else name
        if path.count(".") >= MAX_DEPTH:
            return ToolResult(text=f"'{self.agent.name}' stands {MAX_DEPTH} deep inside other agents.", failed=True)
        branch = self._branch(leg, name, path, arguments)
        try:
            end, _ = await self.strategy.run(branch)
        except (Fenced, RunCancelRequested):
            raise
        except BaseExceptionGroup as group:
            failure = _failure(group)
            if failure is None:
                raise
            await self.calls.give_up_branch(leg, path)
            return ToolResult(text=f"'{self.agent.name}' failed: {failure.message}", failed=True)
        except ServiceError as error:
            await self.calls.give_up_branch(leg, path)
            return ToolResult(text=f"'{self.agent.name}' failed: {error.message}", failed=True)
        if end is not LoopEnd.ANSWERED:
            return None
        forget(leg, path)
        return ToolResult(text=branch.progress.answer)

    def _branch(self, leg: Leg, name: str, path: str, arguments: Mapping[str, Any]) -> Leg:
        begun = path in (leg.root or leg).progress.branches
        text = canonical_json(dict(arguments)).decode() if self.workflow.parameters else str(arguments["input"])
        branch = leg.branch(name, _spec_of(leg, self.agent), [text_message(Role.USER, text)])
        if not begun:
            branch.progress.phase = Phase.PREPARE
        return branch


class WorkflowTools:
    """Finds workflows for agents that name them. Of those kept in the database only named ones are looked up."""

    def __init__(
        self,
        agents: AgentsByName,
        there: AgentsThere,
        operators: Sequence[Agent],
        strategy: Strategy,
        calls: Calls,
    ) -> None:
        self._agents = agents
        self._there = there
        self._operators = tuple(agent for agent in operators if agent.type is AgentType.WORKFLOW)
        self._strategy = strategy
        self._calls = calls

    async def tools(self, principal: Principal, patterns: tuple[str, ...]) -> Provided:
        """Return the workflows that a pattern names in full; for no pattern the operator's."""
        if not patterns:
            return Provided(tools=tuple(tool for agent in self._operators if (tool := self._tool(agent))))
        found = [await self.find(principal, name) for name in dict.fromkeys(patterns)]
        return Provided(tools=tuple(tool for tool in found if tool is not None))

    async def find(self, principal: Principal, name: str) -> Tool | None:
        """Return one; None when there is none of that name."""
        if "__" in name or not _TOOL_NAME.fullmatch(name):
            return None
        try:
            agent = await self._agents.get(principal, name)
        except AgentNotFound:
            return None
        return self._tool(agent) if agent.type is AgentType.WORKFLOW and agent.name == name else None

    async def everything(self, principal: Principal) -> Sequence[Tool]:
        """Return all workflows that `principal` may give an agent."""
        there = await self._there.list(principal)
        workflows = [agent for agent in there if agent.type is AgentType.WORKFLOW]
        return [tool for agent in workflows if (tool := self._tool(agent))]

    def _tool(self, agent: Agent) -> WorkflowTool | None:
        if not _TOOL_NAME.fullmatch(agent.name):
            return None
        return WorkflowTool(
            agent=agent, workflow=checked(agent.workflow_yaml), strategy=self._strategy, calls=self._calls
        )


def _spec_of(leg: Leg, agent: Agent) -> RunSpec:
    """Return what the caller's run is for the workflow: the same people and caps, its own tools and policies."""
    return replace(
        leg.spec,
        agent=agent,
        model=agent.model or leg.spec.model,
        budget=agent.budget,
        sampling=agent.sampling,
        output=OutputFormat(),
        tools=(),
        tool_choice="auto",
        sources=tuple(binding.source for binding in agent.sources),
        instructions="",
        on_retraction=OnRetraction.EMIT,
    )


def _failure(group: BaseExceptionGroup[BaseException]) -> ServiceError | None:
    """Return the failure that a group is about, None when something stops the whole run or is a fault of ours."""
    if group.subgroup((RunCancelRequested, Fenced)) is not None:
        return None
    first: BaseException | None = group.subgroup(ServiceError)
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first if isinstance(first, ServiceError) else None
