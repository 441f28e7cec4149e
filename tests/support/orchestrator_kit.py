"""Fakes of everything around the loop and the gate: a journal in memory, a scripted model, approvals, tools."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import NoOpTracer

from services.chassis.canonical import canonical_json
from services.chassis.identity import Principal
from services.chassis.telemetry import no_telemetry
from services.orchestrator.carrying import Carrying
from services.orchestrator.consent import Consents
from services.orchestrator.consult import Consultant
from services.orchestrator.context.compaction import Compactor
from services.orchestrator.dedup import ConversationMemory, Deduplicator
from services.orchestrator.domain.agent import Agent, ToolBinding
from services.orchestrator.domain.events import Event, ToolCallFinished, ToolCallStarted
from services.orchestrator.domain.messages import Budget, Message, Role, ToolCall, ToolSpec, Usage, text_message
from services.orchestrator.domain.run import Checkpoint, RunCancelRequested
from services.orchestrator.domain.state import Pending, Phase, Progress, RunSpec
from services.orchestrator.execution import Executor
from services.orchestrator.gate import Gate
from services.orchestrator.leg import Leg
from services.orchestrator.loop import Loop
from services.orchestrator.metrics import RunMetrics
from services.orchestrator.models.ports import (
    CallPiece,
    CallTiming,
    ModelEvent,
    ModelInfo,
    ModelReply,
    ModelRequest,
    Purpose,
    TextPiece,
)
from services.orchestrator.ports import (
    ApprovalRecord,
    ApprovalRequest,
    Decision,
    GateDecision,
    GateVerdict,
    RecordState,
)
from services.orchestrator.speak import Speaker
from services.orchestrator.tools.ports import (
    Consent,
    Effect,
    Tool,
    Toolbox,
    ToolContext,
    ToolDefinition,
    ToolResult,
)
from tests.support.clock import FakeClock, SequentialIds

ANN = Principal(tenant="t1", user="ann", scopes=frozenset({"*"}))
START = datetime(2026, 1, 5, 12, tzinfo=UTC)
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


@dataclass
class FakeJournal:
    """Records events and checkpoints; `cancelled_by` refuses the next start of a tool."""

    events: list[Event] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    cancelled_by: str = ""
    last_sequence: int = 0
    congested: bool = False
    announced: bool = False

    def delta(self, event: Event, step_id: str = "") -> None:
        self.events.append(event)
        self.last_sequence += 1

    def save(self, checkpoint: Checkpoint, *events: Event, step_id: str = "") -> None:
        self.events += events
        self.last_sequence += len(events)
        self.checkpoints.append(checkpoint)

    def save_soon(self, draw: Callable[[], Checkpoint], *events: Event, step_id: str = "") -> None:
        self.save(draw(), *events, step_id=step_id)

    def begin_to_read(self, event: ToolCallStarted, step_id: str = "") -> None:
        if self.cancelled_by:
            raise RunCancelRequested("r1", self.cancelled_by)
        self.delta(event, step_id)

    async def fact(self, *events: Event, step_id: str = "", checkpoint: Checkpoint | None = None, **rest: Any) -> None:
        await asyncio.sleep(0)
        if self.cancelled_by and any(isinstance(event, ToolCallStarted) for event in events):
            raise RunCancelRequested("r1", self.cancelled_by)
        self.events += events
        self.last_sequence += len(events)
        if checkpoint is not None:
            self.checkpoints.append(checkpoint)

    def of(self, kind: type) -> list[Any]:
        """Return the recorded events of one class."""
        return [event for event in self.events if isinstance(event, kind)]


Run = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolResult]]


@dataclass
class FakeTool:
    """A tool whose work is a function; counts its executions."""

    name: str
    work: Run
    consent: Consent = Consent.ALLOW
    effect: Effect = Effect.READ
    schema: dict[str, Any] = field(default_factory=lambda: QUERY)
    options: dict[str, Any] = field(default_factory=dict)
    executions: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def definition(self) -> ToolDefinition:
        spec = ToolSpec(name=self.name, description=self.name, parameters_json=canonical_json(self.schema))
        return ToolDefinition(spec=spec, title=self.name, effect=self.effect, consent=self.consent, **self.options)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.executions.append(arguments)
        return await self.work(arguments, context)


def answering(text: str) -> Run:
    """Return work that answers `text`."""

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text=text)

    return work


@dataclass
class FakeApprovals:
    """The approval service in memory: records by id, decided by the test."""

    records: dict[str, ApprovalRecord] = field(default_factory=dict)
    requests: list[ApprovalRequest] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    asked_for: list[Sequence[str]] = field(default_factory=list)
    verdict: GateVerdict = GateVerdict.ASK

    async def evaluate(
        self, principal: Principal, *, tool: str, bindings: tuple[ToolBinding, ...], **rest: Any
    ) -> GateDecision:
        return GateDecision(verdict=self.verdict, policy="test policy", timeout=timedelta(minutes=2))

    async def request(self, principal: Principal, request: ApprovalRequest) -> ApprovalRecord:
        self.requests.append(request)
        record = ApprovalRecord(
            approval_id=request.approval_id,
            run_id=request.run_id,
            call_id=request.call_id,
            state=RecordState.PENDING,
            arguments_digest=hashlib.sha256(request.arguments_json).hexdigest(),
            deadline=START + timedelta(minutes=2),
        )
        return self.records.setdefault(request.approval_id, record)

    async def get(self, principal: Principal, approval_ids: Sequence[str]) -> dict[str, ApprovalRecord]:
        self.asked_for.append(approval_ids)
        return {i: self.records[i] for i in approval_ids if i in self.records}

    async def decide(self, principal: Principal, approval_id: str, run_id: str, decision: Decision) -> ApprovalRecord:
        raise NotImplementedError

    async def cancel(self, principal: Principal, approval_id: str) -> None:
        self.cancelled.append(approval_id)

    async def changes(self) -> AsyncIterator[str]:
        nothing: tuple[str, ...] = ()
        for change in nothing:
            yield change

    def settle(self, call_id: str, state: RecordState, **changes: Any) -> None:
        """Decide the request of one call."""
        (record,) = [r for r in self.records.values() if r.call_id == call_id]
        changes.setdefault("decided_by", "bob")
        self.records[record.approval_id] = replace(record, state=state, decided_at=START, **changes)


TIMING = CallTiming(
    started_at=START,
    queued=timedelta(),
    time_to_first_token=timedelta(milliseconds=5),
    total=timedelta(milliseconds=20),
    longest_stall=timedelta(),
    attempts=1,
)


def reply(text: str = "", *calls: ToolCall, reasoning: str = "", usage: Usage | None = None) -> ModelReply:
    """Return a whole reply."""
    return ModelReply(
        text=text,
        reasoning=reasoning,
        tool_calls=calls,
        finish_reason="tool_calls" if calls else "stop",
        usage=usage or Usage(input_tokens=10, output_tokens=5),
        model="m1",
        timing=TIMING,
    )


def tool_call(call_id: str, name: str, **arguments: Any) -> ToolCall:
    """Return a call with canonical arguments."""
    return ToolCall(call_id=call_id, name=name, arguments_json=canonical_json(arguments), reason="to know")


@dataclass
class ScriptedModel:
    """Gives one reply after another and keeps the requests."""

    replies: list[ModelReply]
    requests: list[ModelRequest] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        answer = self.replies.pop(0)
        if answer.text:
            yield TextPiece(text=answer.text)
        for call in answer.tool_calls:
            yield CallPiece(call_id=call.call_id, name=call.name, arguments_fragment=call.arguments_json.decode())
        yield answer


@dataclass
class FakeCatalogue:
    """One model, whatever it is called."""

    window: int = 128_000

    def get(self, model_id: str) -> ModelInfo:
        return ModelInfo(
            model_id=model_id, upstream_name=model_id, window=self.window, output_limit=0, capabilities=frozenset()
        )

    def default(self, purpose: Purpose) -> ModelInfo:
        return self.get("m1")

    def list(self) -> tuple[ModelInfo, ...]:
        return (self.get("m1"),)


@dataclass
class Bench:
    """A leg with everything around it."""

    leg: Leg
    journal: FakeJournal
    approvals: FakeApprovals
    gate: Gate
    clock: FakeClock
    window: int = 128_000

    def loop(self, model: ScriptedModel) -> Loop:
        """Return a loop over `model` and this bench's gate."""
        return Loop(Speaker(model, SequentialIds("mc")), self.gate, self.compactor(model), RunMetrics(no_telemetry()))

    def compactor(self, model: ScriptedModel) -> Compactor:
        """Return a compactor that asks `model`."""
        return Compactor(model, FakeCatalogue(self.window), SequentialIds("cc"))

    def propose(self, *calls: ToolCall) -> None:
        """Put the leg where the model has asked for `calls`."""
        self.leg.progress.pending = tuple(Pending(call=call) for call in calls)
        self.leg.progress.phase = Phase.CALLS

    def results(self) -> dict[str, str]:
        """Return what the model would read of each settled call."""
        return {p.call.call_id: p.result.text for p in self.leg.progress.pending if p.result is not None}

    def statuses(self) -> dict[str, str]:
        """Return the status of each finished call, as the journal tells it."""
        return {e.call_id: e.status.name for e in self.journal.of(ToolCallFinished)}


def bench(
    *tools: Tool,
    client_tools: tuple[ToolSpec, ...] = (),
    budget: Budget | None = None,
    bindings: tuple[ToolBinding, ...] = (),
    parallel_calls: int = 8,
    result_characters: int = 32_000,
    linger: timedelta = timedelta(milliseconds=50),
    consultant: Consultant | None = None,
    **spec: Any,
) -> Bench:
    """Return a leg that stands before its first round."""
    clock, journal, approvals = FakeClock(START), FakeJournal(), FakeApprovals()
    tracer = NoOpTracer()
    progress = Progress(messages=[text_message(Role.SYSTEM, "You are a test."), text_message(Role.USER, "Why?")])
    progress.turn_start, progress.phase = 1, Phase.ROUND_START
    memory = ConversationMemory()
    leg = Leg(
        spec=RunSpec(
            run_id="r1",
            principal=ANN,
            agent=Agent(agent_id="a", name="a", tools=bindings),
            model="m1",
            budget=budget or Budget(rounds=25, tool_calls=40, tokens=200_000),
            tools=(*(tool.definition.spec for tool in tools), *client_tools),
            **spec,
        ),
        progress=progress,
        journal=journal,  # type: ignore[arg-type]
        clock=clock,
        dedup=Deduplicator(progress.seen, memory, clock),
        memory=memory,
        parent=Context(),
    )
    gate = Gate(
        tools=Toolbox(tools),
        approvals=approvals,
        consents=Consents(approvals, tracer),
        carrying=Carrying(
            Executor(linger), tracer, RunMetrics(no_telemetry()), result_characters, consultant=consultant
        ),
        parallel_calls=parallel_calls,
    )
    return Bench(leg=leg, journal=journal, approvals=approvals, gate=gate, clock=clock)


def messages_of(model: ScriptedModel, call: int) -> list[Message]:
    """Return the messages of one request."""
    return list(model.requests[call].messages)
