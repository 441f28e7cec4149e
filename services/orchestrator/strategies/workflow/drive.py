"""Walking the graph: threads side by side, each node counted, told, tried, timed and saved."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from services.chassis.errors import ServiceError
from services.orchestrator.domain.events import Notice, StepFinished, StepStarted
from services.orchestrator.domain.run import Fenced, RunCancelRequested
from services.orchestrator.leg import Leg
from services.orchestrator.strategies.workflow.calls import Calls, forget
from services.orchestrator.strategies.workflow.nodes import Nodes
from services.orchestrator.strategies.workflow.outcome import (
    Ended,
    Forked,
    NodeFailed,
    Outcome,
    Paused,
    Step,
    StepLimitReached,
    Went,
    WorkflowNodeFailed,
)
from services.orchestrator.workflow.expressions import ExpressionFailed
from services.orchestrator.workflow.graph import Node, ParallelWork, Workflow
from services.orchestrator.workflow.position import Position, Thread, reads_of
from services.orchestrator.workflow.templates import TemplateFailed

_log = logging.getLogger(__name__)
SUMMARY_CHARACTERS = 500
Sleep = Callable[[float], Awaitable[None]]


class Drive:
    """One leg of one workflow."""

    def __init__(
        self, *, leg: Leg, workflow: Workflow, position: Position, nodes: Nodes, calls: Calls, sleep: Sleep
    ) -> None:
        self._leg = leg
        self._workflow = workflow
        self._position = position
        self._reads = reads_of(workflow)
        self._nodes = nodes
        self._calls = calls
        self._sleep = sleep
        self._group: asyncio.TaskGroup | None = None
        self._end: Ended | None = None

    async def run(self) -> Ended | None:
        """Go on from the position until the end, or (None) until every thread waits for people.

        Raises WorkflowNodeFailed and StepLimitReached, alone or in a group, besides what stops a run.
        """
        self._sync()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for key, thread in self._position.threads.items():
                    if not thread.forked:
                        group.create_task(self._go(key))
        except ExceptionGroup as failures:
            if failures.subgroup((Fenced, RunCancelRequested)) is None:
                await self._give_up_others()
            raise
        return self._end

    async def _give_up_others(self) -> None:
        """Tell of the steps that were at work when another one failed, and settle what they had open."""
        for thread in self._position.threads.values():
            if thread.entered and not thread.forked:
                step = self._step(thread, self._workflow.nodes[thread.at])
                await self._calls.give_up(step)
                self._finished(step, "given up, for another node failed", failed=True)

    async def _go(self, key: str) -> None:
        """Walk one thread as far as it goes; the last one to come to a join goes on as the one that forked."""
        while True:
            await self._breathe()
            thread = self._position.threads[key]
            if thread.at == thread.join:
                if not self._joined(key):
                    return
                key = thread.parent
                continue
            node = self._workflow.nodes[thread.at]
            outcome = await self._visit(thread, node)
            match outcome:
                case Paused():
                    return
                case Ended():
                    self._end = outcome
                    return
                case Forked():
                    self._fork(key, thread, node)
                    return
                case Went():
                    continue

    async def _breathe(self) -> None:
        """Let others have their turn: nodes that only compute never wait for anything."""
        if self._leg.journal.congested:
            await self._leg.journal.settle()
        await asyncio.sleep(0)

    # --- branches -------------------------------------------------------------------------------------------------

    def _fork(self, key: str, thread: Thread, node: Node) -> None:
        assert isinstance(node.work, ParallelWork)
        assert self._group is not None
        thread.forked = True
        for index, start in enumerate(node.work.branches):
            child = f"{key}.{index}"
            self._position.threads[child] = Thread(at=start, parent=key, join=node.work.join)
            self._group.create_task(self._go(child))
        self._finished(self._step(thread, node), f"{len(node.work.branches)} branches, until {node.work.join}")

    def _joined(self, key: str) -> bool:
        """End a branch at its join; tell whether it was the last one, so that the thread that forked goes on."""
        thread = self._position.threads.pop(key)
        last = not any(other.parent == thread.parent for other in self._position.threads.values())
        if last:
            self._position.threads[thread.parent].move(thread.join)
        self._sync()
        return last

    # --- one visit ------------------------------------------------------------------------------------------------

    async def _visit(self, thread: Thread, node: Node) -> Outcome:
        """Do a node's work from where it stands; afterwards the thread stands at the next one, saved and told."""
        if not thread.entered:
            self._enter(thread, node)
        step = self._step(thread, node)
        try:
            outcome = await self._tries(step)
        except NodeFailed as failure:
            await self._calls.give_up(step)
            if not node.on_error:
                self._finished(step, failure.message, failed=True)
                thread.entered = False  # it is over, nothing is to be given up
                raise WorkflowNodeFailed(node, failure.message) from failure
            self._position.results[node.node_id] = self._reads.kept(node.node_id, {"error": failure.message})
            self._finished(step, failure.message, failed=True, target=node.on_error)
            return Went(target=node.on_error)
        match outcome:
            case Went():
                forget(self._leg, step.path)
                self._keep(node, outcome)
                self._finished(step, outcome.summary, target=outcome.target)
            case Ended():
                self._finished(step, "")
            case Paused() | Forked():
                self._sync()
        return outcome

    def _enter(self, thread: Thread, node: Node) -> None:
        position = self._position
        if position.steps >= self._workflow.steps:
            raise StepLimitReached(position.steps, node)
        position.steps += 1
        thread.visit = position.visits[node.node_id] = position.visits.get(node.node_id, 0) + 1
        thread.entered = True
        path = self._step(thread, node).path
        self._save(path, StepStarted(step_id=path, title=node.label, kind=node.kind.value))

    def _keep(self, node: Node, outcome: Went) -> None:
        self._position.results[node.node_id] = self._reads.kept(node.node_id, {**outcome.results, "error": ""})
        text = outcome.results.get("text")
        if isinstance(text, str) and text:
            self._position.last_text = text

    # --- tries ----------------------------------------------------------------------------------------------------

    async def _tries(self, step: Step) -> Outcome:
        """Return what came of the node, tried as often as it may be. Raises NodeFailed of the last try."""
        retry = step.node.retry
        while True:
            try:
                return await self._once(step)
            except NodeFailed as failure:
                if not failure.again or step.thread.attempt >= retry.attempts:
                    raise
                text = f"'{step.node.label}' failed and is tried again: {failure.message}"
                wait = retry.wait_seconds * 2 ** (step.thread.attempt - 1)
                await self._calls.give_up(step)
                step.thread.attempt += 1
                step.thread.worked = 0.0
                self._save(step.path, Notice(code="node_retried", text=text[:SUMMARY_CHARACTERS]))
                await self._sleep(wait)

    async def _once(self, step: Step) -> Outcome:
        """Work once, within the node's time; the time of earlier legs counts, that of people does not."""
        limit = step.node.timeout_seconds
        began = self._leg.clock.monotonic()
        timer = asyncio.timeout(max(limit - step.thread.worked, 0.0) if limit else None)
        try:
            async with timer:
                return await self._nodes.work(step)
        except TimeoutError:
            if not timer.expired():
                raise
            raise NodeFailed(f"it did not finish within {limit:g} s", again=True) from None
        except (ExpressionFailed, TemplateFailed) as error:
            raise NodeFailed(str(error)) from error
        except (NodeFailed, Fenced, RunCancelRequested):
            raise
        except ServiceError as error:
            raise NodeFailed(f"{error.reason}: {error.message}", again=True) from error
        except BaseExceptionGroup as group:
            raise _translated(group) from group
        finally:
            step.thread.worked += self._leg.clock.monotonic() - began

    # --- journal and checkpoint -----------------------------------------------------------------------------------

    def _step(self, thread: Thread, node: Node) -> Step:
        return Step(leg=self._leg, workflow=self._workflow, node=node, thread=thread, position=self._position)

    def _finished(self, step: Step, summary: str, *, failed: bool = False, target: str = "") -> None:
        """Tell that a step is over, and where its thread stands now."""
        event = StepFinished(
            step_id=step.path,
            failed=failed,
            summary=summary[:SUMMARY_CHARACTERS],
            duration=timedelta(seconds=step.thread.worked),
        )
        path = step.path
        if target:
            step.thread.move(target)
        self._save(path, event)

    def _save(self, path: str, *facts: StepStarted | StepFinished | Notice) -> None:
        """Save the position with what is told. What a crash would only make again is not waited for."""
        self._sync()
        self._leg.journal.save(self._leg.checkpoint(), *facts, step_id=path)

    def _sync(self) -> None:
        """Put the position where every checkpoint finds it, also those of the steps' own."""
        self._leg.progress.strategy = self._position.encode()


def _translated(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what a group of failures is about: what stops the run as it is, else a failure of the node."""
    for kind in (RunCancelRequested, Fenced):
        if (found := group.subgroup(kind)) is not None:
            return found
    services = group.subgroup(ServiceError)
    if services is None:
        return group
    first: BaseException = services
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, ServiceError)
    return NodeFailed(f"{first.reason}: {first.message}", again=True)
