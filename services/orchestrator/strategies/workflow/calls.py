"""Calls that a workflow makes itself: proposed, checkpointed and worked off by the one gate, like a model's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.agent import Agent
from services.orchestrator.domain.events import Stage, StageChanged, ToolCallProposed, ToolStatus
from services.orchestrator.domain.messages import Message, Role, ToolCall, ToolSpec
from services.orchestrator.domain.state import Pending, Phase
from services.orchestrator.gate import Gate
from services.orchestrator.guardrails.framing import bare
from services.orchestrator.leg import Leg
from services.orchestrator.strategies.workflow.outcome import NodeFailed, Step
from services.orchestrator.tools.ports import Toolbox, is_conditional, is_tailored


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """What came of a call, as a model would read it."""

    status: ToolStatus
    text: str

    @property
    def bare(self) -> str:
        """The text without the frame around the words of an outside tool."""
        return bare(self.text)

    @property
    def completed(self) -> bool:
        """Whether it ran, or was answered."""
        return self.status is ToolStatus.COMPLETED


class Calls:
    """Makes the calls of nodes."""

    def __init__(self, toolbox: Toolbox, gate: Gate) -> None:
        self._toolbox = toolbox
        self._gate = gate

    async def make(
        self, step: Step, tool: str, arguments: Mapping[str, Any], *, agent: Agent | None = None, reason: str = ""
    ) -> Called | None:
        """Return what came of calling `tool`, or None when people must decide first. Raises NodeFailed.

        The call is the only one of the step's own branch, so it goes on where it stood after a crash or a pause. Its
        id says step and attempt: nothing else has it. `agent` carries policies of this step alone, `reason` is for
        those who are asked.
        """
        specs = await self.specs(step, (tool,))
        spec = replace(step.leg.spec, tools=specs, agent=agent or step.leg.spec.agent)
        call_id = f"{step.path.replace('.', '-')}-{step.thread.attempt}"
        begun = is_begun(step)
        call = None
        if not begun:
            reason = reason or f"Step '{step.node.label}' of the workflow '{step.leg.spec.agent.name}'."
            call = ToolCall(call_id=call_id, name=tool, arguments_json=_canonical(arguments), reason=reason)
        branch = step.leg.branch(step.name, spec, [_asking(call)] if call else ())
        if call is not None:
            branch.progress.pending = (Pending(call=call),)
            branch.progress.phase = Phase.CALLS
            branch.post(StageChanged(stage=Stage.CALLING_TOOLS, text=f"Using {tool}"))
            await branch.commit(ToolCallProposed(call=call, round=branch.progress.round))
        await self._gate.work_off(branch)
        (pending,) = branch.progress.pending
        if pending.result is None or pending.status is None:
            return None
        return Called(status=pending.status, text=pending.result.text)

    async def specs(self, step: Step, names: tuple[str, ...]) -> tuple[ToolSpec, ...]:
        """Return tools as the run's principal has them. Raises NodeFailed for one that is not there for them."""
        principal = step.leg.spec.principal
        found = []
        for name in names:
            tool = await self._toolbox.find(principal, name)
            if tool is None:
                raise NodeFailed(f"there is no tool '{name}'")
            if not is_begun(step) and is_conditional(tool) and (why := await tool.withheld(principal)):
                raise NodeFailed(f"the tool '{name}' cannot be used: {why}")
            found.append(tool.spec_for(principal) if is_tailored(tool) else tool.definition.spec)
        return tuple(found)

    async def give_up(self, step: Step) -> None:
        """Settle what a step that is given up has open, also inside it, and forget it."""
        await self.give_up_branch(step.leg, step.path)

    async def give_up_branch(self, leg: Leg, path: str) -> None:
        """Do so for the branch of that path."""
        for branch in branches_of(leg, path):
            await self._gate.abandon(branch)
        forget(leg, path)


def is_begun(step: Step) -> bool:
    """Whether the step has a branch already."""
    root = step.leg.root or step.leg
    return step.path in root.progress.branches


def branches_of(leg: Leg, path: str) -> list[Leg]:
    """Return the legs of a step's branch and of those of the steps inside it."""
    root = leg.root or leg
    inside = {p: b for p, b in root.progress.branches.items() if p == path or p.startswith(f"{path}.")}
    return [replace(leg, progress=branch, step_id=each, root=root) for each, branch in inside.items()]


def forget(leg: Leg, path: str) -> None:
    """Forget a step's branch, and those of the steps inside it."""
    root = leg.root or leg
    for branch in branches_of(leg, path):
        root.progress.branches.pop(branch.step_id, None)


def value_of(text: str) -> Any:
    """Return what a text says as JSON; None when it is not JSON."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _canonical(arguments: Mapping[str, Any]) -> bytes:
    try:
        return canonical_json(arguments)
    except (TypeError, ValueError) as error:
        raise NodeFailed(f"the arguments cannot be sent: {error}") from error


def _asking(call: ToolCall) -> Message:
    return Message(role=Role.ASSISTANT, tool_calls=(call,))
