"""The steps of a plan, side by side: each a loop of its own with the question, the history and the files in view."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from services.chassis.errors import ServiceError
from services.orchestrator.domain.events import StepFinished, StepStarted
from services.orchestrator.domain.messages import Budget, Message, OutputFormat, Role, text_message
from services.orchestrator.domain.run import Fenced, OnRetraction
from services.orchestrator.domain.state import Phase, RunSpec
from services.orchestrator.gate import Gate
from services.orchestrator.guardrails.framing import DOCUMENTS
from services.orchestrator.leg import Leg
from services.orchestrator.loop import Loop, LoopEnd
from services.orchestrator.strategies.research.progress import Research, Step, StepState, encode
from services.orchestrator.tools.ask_user import AskUserTool, WaitForUserTool

_log = logging.getLogger(__name__)
KIND = "research"
# Of the run's caps, the part that steps may use up together; the rest is for the answer.
SHARE = 0.8
FEWEST_ROUNDS = 2
# What a decision allowed is carried out also when the time was up before it came.
GRACE = timedelta(seconds=30)
REPORT_CHARACTERS = 6_000
SUMMARY_CHARACTERS = 300
# The user is asked before the plan, by one voice; a step decides for itself.
_NOT_IN_STEPS = frozenset({AskUserTool.definition.name, WaitForUserTool.definition.name})
_SEARCHES = frozenset({"search", "search_web"})

_INSTRUCTION = """\
{question}

[Step {number} of {count} of the research: {title}]
Work on this step alone; the other steps are worked on at the same time. Use your tools. When a search finds nothing
useful, search again with other words: synonyms, wider or narrower terms, the language of the documents. Then report
what you found in at most 250 words, each statement with its number, like [1]. Say plainly what you did not find."""
_SEARCH_AGAIN = (
    "Your searches for this step found nothing. Search once more with quite other words: synonyms, a wider term, the "
    "other language. Then report, also when there is still nothing."
)


@dataclass(slots=True)
class Work:
    """The research at hand, shared by its steps. Whoever changes it saves it with the next checkpoint."""

    leg: Leg
    research: Research

    def put(self, research: Research) -> None:
        """Let the next checkpoint hold `research`."""
        self.research = research
        self.leg.progress.strategy = encode(research)

    def change(self, step: Step) -> None:
        """Let the next checkpoint hold the step as it is now."""
        self.put(self.research.with_step(step))


class Steps:
    """Works on the steps of a plan."""

    def __init__(self, loop: Loop, gate: Gate) -> None:
        self._loop = loop
        self._gate = gate

    async def work(self, work: Work) -> bool:
        """Bring every open step as far as it can go; return whether some wait for a decision.

        When the run's time is up, steps that still work are stopped and what they have is their report. Raises the
        failure of a step only when all failed and there is nothing to answer from.
        """
        leg = work.leg
        legs = [(step, self._branch(work, step)) for step in work.research.steps if step.is_open]
        for step, branch in legs:
            if step.state is StepState.PLANNED:
                branch.post(StepStarted(step_id=branch.step_id, title=step.title, kind=KIND))
                work.change(replace(step, state=StepState.RUNNING))
        await leg.commit()
        begun = leg.clock.monotonic()
        waiting: set[str] = set()
        failures: list[ServiceError] = []
        try:
            async with asyncio.timeout(_seconds_left(leg)), asyncio.TaskGroup() as group:
                for step, branch in legs:
                    group.create_task(self._one(work, branch, step.step_id, waiting, failures))
        except TimeoutError:
            await self._cut(work, [pair for pair in legs if pair[0].step_id not in waiting], begun)
        steps = work.research.steps
        if failures and all(step.state is StepState.FAILED for step in steps) and not len(leg.progress.evidence):
            raise failures[0]
        return bool(waiting)

    async def _one(
        self, work: Work, branch: Leg, step_id: str, waiting: set[str], failures: list[ServiceError]
    ) -> None:
        begun = branch.clock.monotonic()
        try:
            report = await self._report(work, branch, step_id)
        except (ServiceError, BaseExceptionGroup) as raised:
            error = _failure(raised)
            if error is None:
                raise
            _log.warning("a step failed: %s", error.message, extra={"run_id": branch.spec.run_id, "step": step_id})
            failures.append(error)
            await self._gate.abandon(branch)
            await self._finish(work, branch, step_id, StepState.FAILED, f"This step failed: {error.message}", begun)
            return
        if report is None:
            waiting.add(step_id)
            step = work.research.step(step_id)
            work.change(replace(step, seconds=step.seconds + branch.clock.monotonic() - begun))
            return
        await self._finish(work, branch, step_id, StepState.DONE, report, begun)

    async def _report(self, work: Work, branch: Leg, step_id: str) -> str | None:
        """Return the step's report; None while it waits for a decision."""
        while True:
            end, reply = await self._loop.run(branch)
            if end is not LoopEnd.ANSWERED or reply is None:
                return None
            step = work.research.step(step_id)
            if step.searched_again or branch.cap_reached() or not _found_nothing(branch.progress.messages):
                return reply.text.strip()
            work.change(replace(step, searched_again=True))
            branch.progress.messages.append(text_message(Role.USER, _SEARCH_AGAIN))
            branch.progress.phase = Phase.ROUND_START
            await branch.commit()

    async def _cut(self, work: Work, legs: Sequence[tuple[Step, Leg]], begun: float) -> None:
        """Stop steps whose time is up; what they wrote so far is their report."""
        for step, branch in legs:
            if not work.research.step(step.step_id).is_open:
                continue
            await self._gate.abandon(branch)
            written = branch.progress.answer.strip()
            report = "\n\n".join(part for part in (written, "This step was stopped: the time was up.") if part)
            await self._finish(work, branch, step.step_id, StepState.FAILED, report, begun)

    async def _finish(self, work: Work, branch: Leg, step_id: str, state: StepState, report: str, begun: float) -> None:
        """Keep the step's report and forget its messages, in one checkpoint."""
        step = work.research.step(step_id)
        seconds = step.seconds + branch.clock.monotonic() - begun
        work.change(replace(step, state=state, report=report[:REPORT_CHARACTERS], seconds=seconds))
        work.leg.close_branch(step_id)
        summary = " ".join(report.split())
        await branch.commit(
            StepFinished(
                step_id=branch.step_id,
                failed=state is StepState.FAILED,
                summary=summary if len(summary) <= SUMMARY_CHARACTERS else f"{summary[: SUMMARY_CHARACTERS - 1]}…",
                duration=timedelta(seconds=seconds),
            )
        )

    def _branch(self, work: Work, step: Step) -> Leg:
        leg, steps = work.leg, work.research.steps
        instruction = _INSTRUCTION.format(
            number=steps.index(step) + 1, count=len(steps), title=step.title, question=step.question
        )
        messages = [*leg.progress.messages, text_message(Role.USER, instruction)]
        return leg.branch(step.step_id, step_spec(leg.spec, len(steps)), messages, leg.progress.turn_start)


def step_spec(spec: RunSpec, count: int) -> RunSpec:
    """Return what one of `count` steps works with: the tools but for those that people answer, and a share of the caps.

    A caller that ends runs for its own tools gets no step back, so those tools are the agent's alone.
    """
    tools = tuple(
        tool
        for tool in spec.tools
        if tool.name not in _NOT_IN_STEPS and not (tool.client_side and spec.client_tools_end_run)
    )
    return replace(
        spec,
        tools=tools,
        tool_choice="auto",
        budget=shared(spec.budget, count),
        output=OutputFormat(),
        # What a step writes is no answer: it may be withdrawn on every wire.
        on_retraction=OnRetraction.EMIT,
    )


def shared(budget: Budget, count: int) -> Budget:
    """Return one step's caps: its part of rounds, calls, tokens and cost; the time is the same for all."""

    def part(cap: int | None, fewest: int) -> int | None:
        return None if cap is None else max(int(cap * SHARE) // count, fewest)

    return Budget(
        rounds=part(budget.rounds, FEWEST_ROUNDS),
        tool_calls=part(budget.tool_calls, 1),
        tokens=part(budget.tokens, 1),
        wall_time=budget.wall_time * SHARE if budget.wall_time is not None else None,
        cost_micros=part(budget.cost_micros, 1),
    )


def _seconds_left(leg: Leg) -> float | None:
    cap = leg.spec.budget.wall_time
    if cap is None:
        return None
    left = cap - leg.progress.spent.wall_time
    # Waiting for people is not working time: only a run that has been at work before can have too little left.
    return (left if not leg.progress.spent.rounds else max(left, GRACE)) / timedelta(seconds=1)


def _found_nothing(messages: Sequence[Message]) -> bool:
    """Whether the step searched and no search gave a document."""
    results = [message for message in messages if message.role is Role.TOOL and message.tool_name in _SEARCHES]
    return bool(results) and not any(DOCUMENTS in message.text for message in results)


def _failure(error: BaseException) -> ServiceError | None:
    """Return what failed a step, the first of several; None for what ends the run: a stop, a lost lease, a bug."""
    if isinstance(error, BaseExceptionGroup):
        found = [_failure(inner) for inner in error.exceptions]
        return found[0] if all(found) else None
    return error if isinstance(error, ServiceError) and not isinstance(error, Fenced) else None
