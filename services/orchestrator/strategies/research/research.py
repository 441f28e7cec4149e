"""The strategy of research agents. It may be entered again at any place: all it knows stands in the leg's progress."""

from __future__ import annotations

from dataclasses import replace

from services.chassis.clock import Ids
from services.orchestrator.agents.prepare import Preparer
from services.orchestrator.domain.events import Notice, PlanMade, PlanStep, Stage, StageChanged, ToolCallProposed
from services.orchestrator.domain.messages import Message, Role
from services.orchestrator.domain.state import Pending, Phase
from services.orchestrator.gate import Gate
from services.orchestrator.leg import Leg
from services.orchestrator.loop import Loop, LoopEnd
from services.orchestrator.models.ports import Catalogue, ModelReply, Purpose
from services.orchestrator.strategies.research import clarify, progress
from services.orchestrator.strategies.research.plan import Plan, Planner, question_of
from services.orchestrator.strategies.research.progress import Research
from services.orchestrator.strategies.research.steps import Steps, Work
from services.orchestrator.strategies.research.synthesis import material


class ResearchStrategy:
    """Clarify → plan → steps side by side → one answer.

    Until the answer is made the run's own loop has not begun: its phase stays PREPARE, which says that nothing of the
    answer can have been shown before a crash.
    """

    def __init__(
        self, *, preparer: Preparer, planner: Planner, loop: Loop, gate: Gate, catalogue: Catalogue, ids: Ids
    ) -> None:
        self._preparer = preparer
        self._planner = planner
        self._loop = loop
        self._gate = gate
        self._steps = Steps(loop, gate)
        self._catalogue = catalogue
        self._ids = ids

    async def run(self, leg: Leg) -> tuple[LoopEnd, ModelReply | None]:
        """Go on from where the research stands."""
        work = Work(leg, progress.decode(leg.progress.strategy))
        if not leg.progress.strategy and not await self._prepare(work):
            return LoopEnd.WAITING, None
        while work.research.stage is progress.Stage.PLAN:
            if not await self._plan(work):
                return LoopEnd.WAITING, None
        if work.research.stage is progress.Stage.STEPS:
            leg.post(StageChanged(stage=Stage.CALLING_TOOLS, text="Working on the steps"))
            if await self._steps.work(work):
                return LoopEnd.WAITING, None
            await self._begin_answer(work)
        return await self._answer(leg)

    async def _prepare(self, work: Work) -> bool:
        """Make the prompt; return False while a tool that it names waits for a person."""
        leg = work.leg
        if leg.progress.phase is Phase.PREPARE and not await self._preparer.prepare(leg):
            return False
        leg.progress.phase = Phase.PREPARE
        work.put(work.research)
        leg.save()
        return True

    async def _plan(self, work: Work) -> bool:
        """Ask back or make the plan; return False while the user has not answered."""
        leg = work.leg
        if leg.progress.pending and not await self._answered(work):
            return False
        leg.post(StageChanged(stage=Stage.THINKING, text="Planning the research"))
        plan = await self._planner.plan(leg, may_ask=not work.research.asked and clarify.may_ask(leg))
        if plan.questions:
            await self._ask(work, plan)
            return True
        facts = [Notice(code="plan_failed", text="No plan could be made; the question is one step.")]
        made = PlanMade(
            complexity=plan.complexity,
            steps=tuple(PlanStep(step_id=leg.path(step.step_id), title=step.title) for step in plan.steps),
        )
        work.put(replace(work.research, stage=progress.Stage.STEPS, complexity=plan.complexity, steps=plan.steps))
        await leg.commit(*(facts if plan.failed else ()), made)
        return True

    async def _ask(self, work: Work, plan: Plan) -> None:
        """Put the questions where the gate takes them up."""
        leg = work.leg
        call = clarify.as_call(plan.questions, self._ids.new())
        leg.progress.messages.append(Message(role=Role.ASSISTANT, tool_calls=(call,)))
        leg.progress.pending = (Pending(call=call),)
        leg.progress.phase = Phase.CALLS
        work.put(replace(work.research, asked=True))
        await leg.commit(ToolCallProposed(call=call, round=leg.progress.round))

    async def _answered(self, work: Work) -> bool:
        """Let the gate look at the questions; once they are settled, what was answered stands in the messages."""
        leg = work.leg
        await self._gate.work_off(leg)
        if leg.progress.waiting:
            return False
        leg.progress.messages += [p.result for p in leg.progress.pending if p.result is not None]
        leg.progress.pending = ()
        leg.progress.round += 1
        leg.progress.phase = Phase.PREPARE
        leg.save()
        return True

    async def _begin_answer(self, work: Work) -> None:
        leg = work.leg
        leg.progress.messages.append(
            material(question_of(leg), work.research.steps, leg.progress.evidence, leg.result_characters)
        )
        leg.progress.phase = Phase.ROUND_START
        # What the reports hold stands in the message now.
        steps = tuple(replace(step, report="") for step in work.research.steps)
        work.put(Research(stage=progress.Stage.ANSWER, asked=work.research.asked, steps=steps))
        await leg.commit()

    async def _answer(self, leg: Leg) -> tuple[LoopEnd, ModelReply | None]:
        """Make the answer without tools; a cap that is reached closes it, from what there is."""
        leg.spec = replace(leg.spec, tools=(), model=self._synthesizer(leg.spec.model))
        leg.purpose = Purpose.SYNTHESIZE
        return await self._loop.run(leg)

    def _synthesizer(self, model: str) -> str:
        """Return the model with the role `synthesize` for a run with the default model; one that was chosen stays."""
        if model != self._catalogue.default(Purpose.ANSWER).model_id:
            return model
        return self._catalogue.default(Purpose.SYNTHESIZE).model_id
