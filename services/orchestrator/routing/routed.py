"""A strategy behind a router: some questions are answered before the agent sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.events import AnswerDelta, Stage, StageChanged
from services.orchestrator.domain.messages import MediaPart, Role, text_message
from services.orchestrator.domain.state import Phase, RunSpec
from services.orchestrator.leg import Leg
from services.orchestrator.loop import LoopEnd
from services.orchestrator.models.ports import ModelReply
from services.orchestrator.routing.config import CALCULATION_HINT, read_router
from services.orchestrator.routing.decide import Choice
from services.orchestrator.routing.router import Router
from services.orchestrator.strategies.ports import Strategy
from services.orchestrator.tools.run_code import RunCodeTool

RUN_CODE = RunCodeTool.definition.name
# The strategy's progress of a run that the agent does not see: what an agent's own strategy writes is never this.
SMALL_TALK = canonical_json({"routed": Choice.SMALL_TALK.value, "v": 1})
OFF_TOPIC = canonical_json({"routed": Choice.OFF_TOPIC.value, "v": 1})


class Routed:
    """Wraps an agent's strategy. Agents without a router go straight through."""

    def __init__(self, agent: Strategy, small_talk: Strategy, router: Router) -> None:
        self._agent = agent
        self._small_talk = small_talk
        self._router = router

    async def run(self, leg: Leg) -> tuple[LoopEnd, ModelReply | None]:
        """Route a new question; what was routed before goes on where it was sent."""
        progress = leg.progress
        if progress.strategy == SMALL_TALK:
            return await self._small_talk.run(leg)
        if progress.strategy == OFF_TOPIC:
            return _say(leg, read_router(leg.spec.agent.router_json).off_topic_text)
        begun = progress.phase is not Phase.PREPARE or progress.strategy or progress.pending
        if begun or not _may_route(leg):
            return await self._agent.run(leg)
        config, route = await self._router.route(leg)
        match route.choice:
            case Choice.SMALL_TALK:
                progress.strategy = SMALL_TALK
                return await self._small_talk.run(leg)
            case Choice.OFF_TOPIC:
                # What is shown before a crash can be withdrawn only when the checkpoint says where the run stood.
                progress.strategy, progress.phase = OFF_TOPIC, Phase.CLOSING
                await leg.commit()
                return _say(leg, config.off_topic_text)
            case Choice.TOPIC | Choice.UNDECIDED:
                leg.spec = replace(leg.spec, instructions=_hinted(leg.spec, route.hints))
                return await self._agent.run(leg)


def _may_route(leg: Leg) -> bool:
    """Whether the turn is a plain question: no form of answer is asked for, no file comes along, no call is open."""
    spec, progress = leg.spec, leg.progress
    turn = progress.messages[progress.turn_start :]
    if not spec.agent.router_json or not spec.output.is_text or len(turn) != 1 or turn[0].role is not Role.USER:
        return False
    return bool(turn[0].text.strip()) and not any(isinstance(part, MediaPart) for part in turn[0].parts)


def _hinted(spec: RunSpec, hints: Sequence[str]) -> str:
    """Return the run's instructions with the hints; the one for calculations only where there is run_code."""
    computes = any(tool.name == RUN_CODE for tool in spec.tools)
    told = [hint for hint in hints if computes or hint != CALCULATION_HINT]
    return "\n\n".join(text for text in (spec.instructions, *told) if text)


def _say(leg: Leg, text: str) -> tuple[LoopEnd, ModelReply | None]:
    """Answer with a fixed text, under the id that was announced for the next model call."""
    progress = leg.progress
    progress.answer = text
    progress.messages.append(text_message(Role.ASSISTANT, text))
    leg.post(StageChanged(stage=Stage.THINKING, text="Thinking"))
    leg.journal.delta(AnswerDelta(text=text, model_call_id=progress.next_call_id), step_id=leg.step_id)
    leg.post(StageChanged(stage=Stage.ANSWERING, text="Answering"))
    return LoopEnd.ANSWERED, None
