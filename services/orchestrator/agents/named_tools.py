"""Tools that an agent's template names: they run before the first model call, through the gate like every other."""

from __future__ import annotations

from collections.abc import Mapping

from services.orchestrator.agents.prompt import PromptContext, Prompts
from services.orchestrator.domain.events import Stage, StageChanged, ToolCallProposed
from services.orchestrator.domain.messages import ToolCall
from services.orchestrator.domain.state import Pending
from services.orchestrator.gate import Gate
from services.orchestrator.leg import Leg

Results = Mapping[tuple[str, bytes], str]
REASON = "The agent's prompt needs it."


class NamedTools:
    """Brings the calls that a template names as far as they can go."""

    def __init__(self, gate: Gate, prompts: Prompts) -> None:
        self._gate = gate
        self._prompts = prompts

    async def run(self, leg: Leg, context: PromptContext) -> Results | None:
        """Return what each call gave, by tool and arguments; None while one waits for a person.

        Called again after a pause, or after a crash: what the calls were is saved before the first of them runs.
        """
        calls = self._calls(leg, context)
        if not calls:
            return {}
        if not leg.progress.pending:
            used = ", ".join(dict.fromkeys(call.name for call in calls))
            leg.journal.delta(StageChanged(stage=Stage.CALLING_TOOLS, text=f"Using {used}"), step_id=leg.step_id)
            leg.progress.pending = tuple(Pending(call=call) for call in calls)
            await leg.commit(*(ToolCallProposed(call=call, round=leg.progress.round) for call in calls))
        await self._gate.work_off(leg)
        if any(pending.is_waiting for pending in leg.progress.pending):
            return None
        # By the arguments as the template has them now: a day may have passed since the calls were made.
        settled = zip(calls, leg.progress.pending, strict=True)
        return {(c.name, c.arguments_json): p.result.text for c, p in settled if p.result is not None}

    def _calls(self, leg: Leg, context: PromptContext) -> list[ToolCall]:
        """Return the calls of the agent's template whose tools the run has; the others are told as missing there."""
        agent = leg.spec.agent
        if not agent.prompt:
            return []
        ours = {tool.name for tool in leg.spec.tools if not tool.client_side}
        values = self._prompts.values(agent, context)
        named = [call for call in self._prompts.tool_calls(agent.prompt) if call.tool in ours]
        return [
            ToolCall(
                call_id=f"named-{number}",
                name=call.tool,
                arguments_json=call.arguments_json(values),
                reason=REASON,
            )
            for number, call in enumerate(named, 1)
        ]
