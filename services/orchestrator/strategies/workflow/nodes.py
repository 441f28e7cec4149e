"""The work of each kind of node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.agent import Agent, ToolBinding, ToolPolicy
from services.orchestrator.domain.events import Notice, ToolStatus
from services.orchestrator.guardrails.framing import bare, tool_result
from services.orchestrator.strategies.workflow import scripts
from services.orchestrator.strategies.workflow.agents import AgentNodes
from services.orchestrator.strategies.workflow.calls import Called, Calls, value_of
from services.orchestrator.strategies.workflow.outcome import Ended, Forked, NodeFailed, Outcome, Paused, Step, Went
from services.orchestrator.tools.ask_user import ANSWERED, AskUserTool
from services.orchestrator.tools.http_request import STATUS_LINE, HttpRequestTool
from services.orchestrator.tools.request_approval import RequestApprovalTool
from services.orchestrator.tools.run_code import RunCodeTool
from services.orchestrator.workflow.expressions import evaluate
from services.orchestrator.workflow.graph import (
    AgentWork,
    ApprovalWork,
    CodeWork,
    ConditionWork,
    EndWork,
    HttpWork,
    NoteWork,
    ParallelWork,
    QuestionWork,
    StartWork,
    StateWork,
    ToolWork,
)
from services.orchestrator.workflow.reading import is_of, type_of
from services.orchestrator.workflow.templates import render
from services.orchestrator.workflow.values import resolve

# Refusals of people and of time: for an approval they are an answer.
_REFUSED = frozenset({ToolStatus.DENIED, ToolStatus.EXPIRED, ToolStatus.CANCELLED})


class Nodes:
    """Does what a node says, once; tries, times and journal are others' business."""

    def __init__(self, agents: AgentNodes, calls: Calls) -> None:
        self._agents = agents
        self._calls = calls

    async def work(self, step: Step) -> Outcome:  # noqa: C901 - one case for each kind
        """Return what came of it. Raises NodeFailed, ExpressionFailed, TemplateFailed and what services raise."""
        match step.node.work:
            case StartWork():
                return Went(target=step.node.next)
            case AgentWork() as work:
                return await self._agents.work(step, work)
            case ToolWork() as work:
                return await self._called(step, work.tool, resolve(work.arguments, step.variables))
            case CodeWork() as work:
                return await self._code(step, work)
            case HttpWork() as work:
                return await self._http(step, work)
            case StateWork() as work:
                return _set(step, work)
            case ConditionWork() as work:
                return _choose(step, work)
            case ParallelWork():
                return Forked()
            case ApprovalWork() as work:
                return await self._approval(step, work)
            case QuestionWork() as work:
                return await self._question(step, work)
            case NoteWork() as work:
                text = render(work.text, step.variables)
                step.leg.journal.delta(Notice(code="workflow_note", text=text), step_id=step.path)
                return Went(target=step.node.next, results={"text": text}, summary=text)
            case EndWork() as work:
                return _end(step, work)

    async def _called(self, step: Step, tool: str, arguments: Mapping[str, Any]) -> Went | Paused:
        called = await self._calls.make(step, tool, arguments)
        if called is None:
            return Paused()
        text = _succeeded(called).text
        return Went(
            target=step.node.next,
            results={"text": text, "value": value_of(called.bare), "status": called.status.name.lower()},
            summary=called.bare,
        )

    async def _code(self, step: Step, work: CodeWork) -> Went | Paused:
        code = scripts.with_inputs(work.code, resolve(work.inputs, step.variables))
        called = await self._calls.make(step, RunCodeTool.definition.name, {"code": code})
        if called is None:
            return Paused()
        printed = scripts.printed(_succeeded(called).text)
        return Went(
            target=step.node.next,
            results={"text": printed, "value": value_of(printed), "status": called.status.name.lower()},
            summary=printed,
        )

    async def _http(self, step: Step, work: HttpWork) -> Went | Paused:
        given = {name: resolve(getattr(work, name), step.variables) for name in ("url", "headers", "query", "body")}
        arguments = {name: value for name, value in given.items() if value not in (None, {})}
        called = await self._calls.make(step, HttpRequestTool.definition.name, {"method": work.method, **arguments})
        if called is None:
            return Paused()
        head, _, text = _succeeded(called).bare.partition("\n\n")
        status = STATUS_LINE.search(head)
        results = {
            "text": tool_result(HttpRequestTool.definition.name, text),
            "value": value_of(text),
            "code": int(status[1]) if status else 0,
            "status": called.status.name.lower(),
        }
        return Went(target=step.node.next, results=results, summary=head)

    async def _approval(self, step: Step, work: ApprovalWork) -> Went | Paused:
        arguments = {
            "message": render(work.message, step.variables),
            "details": resolve(work.details, step.variables),
        }
        name = RequestApprovalTool.definition.name
        agent = _asking(step.leg.spec.agent, work)
        called = await self._calls.make(step, name, arguments, agent=agent, reason=arguments["message"])
        if called is None:
            return Paused()
        if called.status not in _REFUSED:
            _succeeded(called)
        elif not work.denied:
            raise NodeFailed(called.text)
        results = {
            "approved": called.completed,
            "value": RequestApprovalTool.approved(called.text) if called.completed else None,
            "status": "approved" if called.completed else called.status.name.lower(),
            "text": called.text,
        }
        target = step.node.next if called.completed else work.denied
        return Went(target=target, results=results, summary=str(results["status"]))

    async def _question(self, step: Step, work: QuestionWork) -> Went | Paused:
        spec = step.leg.spec
        if spec.unattended or spec.client_tools_end_run:
            raise NodeFailed("nobody is there to answer a question")
        questions = resolve(work.questions, step.variables)
        called = await self._calls.make(step, AskUserTool.definition.name, {"questions": questions})
        if called is None:
            return Paused()
        text = _succeeded(called).text
        answered = text.startswith(ANSWERED)
        answers = value_of(text.removeprefix(ANSWERED)) if answered else {}
        results = {"answers": answers, "skipped": not answered, "text": text}
        return Went(target=step.node.next, results=results, summary=text)


def _succeeded(called: Called) -> Called:
    """Return the call, or raise NodeFailed with what was told of it. Only what ran and failed may be tried again."""
    if not called.completed:
        raise NodeFailed(called.bare, again=called.status is ToolStatus.FAILED)
    return called


def _asking(agent: Agent, work: ApprovalWork) -> Agent:
    """Return the agent with this node's own policy for the one tool that asks."""
    binding = ToolBinding(
        tool=RequestApprovalTool.definition.name,
        policy=ToolPolicy.QUORUM if work.quorum else ToolPolicy.ASK,
        quorum=work.quorum,
        group=work.group,
        deadline=timedelta(seconds=work.deadline_seconds) if work.deadline_seconds else None,
    )
    return replace(agent, tools=(*agent.tools, binding))


def _set(step: Step, work: StateWork) -> Went:
    variables = step.variables
    values = {name: evaluate(value, variables) if isinstance(value, str) else value for name, value in work.set.items()}
    for name, value in values.items():
        wanted = step.workflow.state[name].type
        if not is_of(value, wanted):
            raise NodeFailed(f"'state.{name}' is {wanted.value} and cannot become {type_of(value).value}")
    step.position.state.update(values)
    told = ", ".join(f"{name} = {canonical_json(value).decode()}" for name, value in values.items())
    return Went(target=step.node.next, summary=told)


def _choose(step: Step, work: ConditionWork) -> Went:
    for branch in work.branches:
        holds = evaluate(branch.when, step.variables)
        if not isinstance(holds, bool):
            raise NodeFailed(f"{branch.when!r} gives {type_of(holds).value}, not bool")
        if holds:
            return Went(target=branch.next, summary=f"{branch.when} → {branch.next}")
    return Went(target=work.otherwise, summary=f"else → {work.otherwise}")


def _end(step: Step, work: EndWork) -> Ended:
    variables = step.variables
    if work.fail:
        raise NodeFailed(render(work.fail, variables))
    if work.value is not None:
        value = canonical_json(resolve(work.value, variables))
        return Ended(text=render(work.output, variables) if work.output else value.decode(), value_json=value)
    if not work.output:
        return Ended(text=bare(step.position.last_text))
    return Ended(text=render(work.output, variables))
