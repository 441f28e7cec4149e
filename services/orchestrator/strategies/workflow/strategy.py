"""Workflow agents: the strategy that leads them."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.events import AnswerDelta, Notice, StageChanged
from services.orchestrator.domain.events import Stage as RunStage
from services.orchestrator.domain.messages import Message, Role, TextPart, Usage
from services.orchestrator.domain.state import Phase
from services.orchestrator.guardrails.guarded_model import REFUSAL
from services.orchestrator.guardrails.guards import NOTICE, Guards
from services.orchestrator.guardrails.ports import Stage
from services.orchestrator.leg import Leg
from services.orchestrator.loop import LoopEnd
from services.orchestrator.models.ports import CallTiming, ModelReply
from services.orchestrator.models.structured import schema_problems
from services.orchestrator.strategies.workflow.calls import Calls
from services.orchestrator.strategies.workflow.drive import Drive, Sleep
from services.orchestrator.strategies.workflow.nodes import Nodes
from services.orchestrator.strategies.workflow.outcome import Ended, OutputMisses
from services.orchestrator.workflow.arguments import arguments_of
from services.orchestrator.workflow.position import Position
from services.orchestrator.workflow.validate import checked


class WorkflowStrategy:
    """Walks the graph of the leg's agent. All that it knows is in the leg's progress."""

    def __init__(self, nodes: Nodes, calls: Calls, guards: Guards, sleep: Sleep = asyncio.sleep) -> None:
        self._nodes = nodes
        self._calls = calls
        self._guards = guards
        self._sleep = sleep

    async def run(self, leg: Leg) -> tuple[LoopEnd, ModelReply | None]:
        """Go on from where the workflow stands, to its end or until people must decide.

        Raises WorkflowInvalid, InvalidRequest for a message that does not fit the parameters, WorkflowNodeFailed,
        StepLimitReached and OutputMisses.
        """
        workflow = checked(leg.spec.agent.workflow_yaml)
        if leg.progress.strategy:
            position = Position.decode(leg.progress.strategy)
        else:
            text = _asked(leg)
            position = Position.begin(workflow, text, arguments_of(leg.spec.agent.name, workflow, text))
        drive = Drive(
            leg=leg,
            workflow=workflow,
            position=position,
            nodes=self._nodes,
            calls=self._calls,
            sleep=self._sleep,
        )
        end = await drive.run()
        if end is None:
            return LoopEnd.WAITING, None
        return LoopEnd.ANSWERED, _answer(leg, await self._judged(leg, _formed(leg, end)))

    async def _judged(self, leg: Leg, end: Ended) -> Ended:
        """Return the end as the guardrails let it pass: it may hold what tools said, which no model has answered."""
        tenant = leg.spec.principal.tenant
        judged = await self._guards.judge(end.text, Stage.OUTPUT, tenant, self._guards.of(Stage.OUTPUT, tenant))
        for notice in judged.notices:
            leg.journal.delta(Notice(code=NOTICE, text=notice), step_id=leg.step_id)
        if judged.refusal:
            text = f"The answer was withheld: {judged.refusal}"
            leg.journal.delta(Notice(code=NOTICE, text=text), step_id=leg.step_id)
            return Ended(text=REFUSAL.format(reason=judged.refusal))
        # A value that was not judged itself must not carry what its text may not.
        return end if judged.text == end.text else Ended(text=judged.text)


def _asked(leg: Leg) -> str:
    turn = leg.progress.messages[leg.progress.turn_start :]
    return next((message.text for message in reversed(turn) if message.role is Role.USER), "").strip()


def _formed(leg: Leg, end: Ended) -> Ended:
    """Return the end with its value in the form that the run asked for, or raise OutputMisses."""
    wanted = leg.spec.output
    if wanted.is_text:
        return end
    try:
        value = json.loads(end.value_json or end.text)
    except ValueError as error:
        raise OutputMisses("the workflow ended with a text, and JSON was asked for; give its end a 'value'") from error
    if wanted.json_schema and (problems := schema_problems(wanted.json_schema, value)):
        raise OutputMisses(f"the workflow's value does not have the form asked for: {'; '.join(problems)}")
    return Ended(text=end.text, value_json=canonical_json(value))


def _answer(leg: Leg, end: Ended) -> ModelReply:
    """Show the end's text as the answer, and return it as the reply that completes the run."""
    progress = leg.progress
    # As before a model's last words: had we died in the middle of them, the next owner withdraws them.
    progress.phase = Phase.CLOSING
    leg.save(StageChanged(stage=RunStage.THINKING, text="Putting the answer together"))
    progress.answer = end.text
    if end.text:
        leg.journal.delta(AnswerDelta(text=end.text, model_call_id=progress.next_call_id), step_id=leg.step_id)
        leg.journal.delta(StageChanged(stage=RunStage.ANSWERING, text="Answering"), step_id=leg.step_id)
    progress.messages.append(Message(role=Role.ASSISTANT, parts=(TextPart(text=end.text),) if end.text else ()))
    return ModelReply(
        text=end.text,
        reasoning="",
        tool_calls=(),
        finish_reason="stop",
        usage=Usage(),
        model=leg.spec.model,
        timing=CallTiming(
            started_at=leg.clock.now(),
            queued=timedelta(),
            time_to_first_token=None,
            total=timedelta(),
            longest_stall=timedelta(),
            attempts=0,
        ),
        value_json=end.value_json,
    )
