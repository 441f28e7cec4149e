"""Leading a run: one leg from where it stands to a pause or its end, in one span, with exactly one terminal event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum

from opentelemetry import trace
from opentelemetry.trace import Link, Span, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from services.chassis import names
from services.chassis.clock import Clock, Ids
from services.chassis.errors import ServiceError
from services.chassis.later import Telling, at_once
from services.chassis.logs import bound
from services.orchestrator.consent import Consents
from services.orchestrator.context.room import result_limit
from services.orchestrator.dedup import ConversationMemory, Deduplicator
from services.orchestrator.domain.events import (
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunPaused,
    RunResumed,
    Stage,
    StageChanged,
    Terminal,
)
from services.orchestrator.domain.messages import Message, Role, TextPart
from services.orchestrator.domain.run import Fenced, RunCancelRequested, RunState
from services.orchestrator.domain.state import Progress, RunSpec
from services.orchestrator.journal.journal import RunJournal
from services.orchestrator.leg import Leg
from services.orchestrator.loop import LoopEnd
from services.orchestrator.metrics import RunMetrics
from services.orchestrator.models.errors import ModelError
from services.orchestrator.models.ports import Catalogue, ModelReply
from services.orchestrator.ports import ApprovalRecord
from services.orchestrator.strategies.ports import Strategies

_log = logging.getLogger(__name__)
_propagator = TraceContextTextMapPropagator()


class StopReason(Enum):
    """Why the tasks of this replica stop a leg."""

    CANCEL = "cancel"
    REFUSED = "refused"
    DRAIN = "drain"
    FENCED = "fenced"


class LegEnd(Enum):
    """How a leg ended; also the outcome on its span."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    HANDED_BACK = "handed_back"
    FENCED = "fenced"


@dataclass(slots=True, kw_only=True)
class Stop:
    """Set before a leg's task is cancelled, so that the leg knows what to write.

    `by` says who asked for it; for REFUSED `code` and `message` say why the run may not go on.
    """

    reason: StopReason | None = None
    by: str = ""
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How a leg begins. `cause` is empty for a new run, else decision, expiry, message or recovery.

    `announced` says that the journal tells of the first model call already. `decided` are records that whoever woke the
    run has read already, by approval id.
    """

    cause: str = ""
    queued: timedelta = timedelta()
    announced: bool = False
    decided: Mapping[str, ApprovalRecord] = field(default_factory=dict)


class Runner:
    """Leads legs. It holds no state between them."""

    def __init__(
        self,
        *,
        strategies: Strategies,
        consents: Consents,
        catalogue: Catalogue,
        tracer: Tracer,
        metrics: RunMetrics,
        clock: Clock,
        ids: Ids,
        later: Telling = at_once,
    ) -> None:
        self._strategies = strategies
        self._consents = consents
        self._catalogue = catalogue
        self._tracer = tracer
        self._metrics = metrics
        self._clock = clock
        self._ids = ids
        self._later = later

    async def lead(
        self,
        journal: RunJournal,
        spec: RunSpec,
        progress: Progress,
        memory: ConversationMemory,
        start: Start,
        stop: Stop,
    ) -> LegEnd:
        """Lead one leg and return how it ended. Never raises but for a failure of the journal itself."""
        span = self._open_span(journal, spec, progress)
        leg = Leg(
            spec=spec,
            progress=progress,
            journal=journal,
            clock=self._clock,
            dedup=Deduplicator(progress.seen, memory, self._clock),
            memory=memory,
            parent=trace.set_span_in_context(span),
            result_characters=result_limit(self._window(spec)),
            decided=start.decided,
        )
        end = LegEnd.FAILED
        begun = self._clock.monotonic()
        queued = start.queued / timedelta(seconds=1)
        span.set_attribute(names.RUN_QUEUED, queued)
        self._metrics.began(start.cause, queued)
        try:
            use = trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)
            with bound(run_id=spec.run_id), use:
                end = await self._lead(leg, start, stop, span)
        finally:
            span.set_attribute(names.RUN_OUTCOME, end.value)
            self._metrics.ended(spec.agent.name, end.value, self._clock.monotonic() - begun)
            if end is LegEnd.FAILED:
                span.set_status(StatusCode.ERROR)
            span.end()
        return end

    async def _lead(self, leg: Leg, start: Start, stop: Stop, span: Span) -> LegEnd:
        try:
            if stop.reason is not None:
                return await self._stopped(leg, stop)
            if start.cause:
                self._resumed(leg, start.cause)
            else:
                self._later(_tell_started, leg.spec)
            end, reply = await self._strategies[leg.spec.agent.type].run(leg)
            match end:
                case LoopEnd.ANSWERED:
                    return await self._complete(leg, reply, "stop")
                case LoopEnd.CALLER_TOOLS:
                    return await self._complete(leg, None, "tool_calls")
                case LoopEnd.WAITING:
                    return await self._pause(leg)
        except asyncio.CancelledError:
            # The cancellation has done its work, the leg stands still; what is written now must not be cut short.
            task = asyncio.current_task()
            if stop.reason is None or task is None:
                raise
            task.uncancel()
            return await self._stopped(leg, stop)
        except BaseExceptionGroup as group:
            return await self._ended_by(leg, _root(group), span)
        except Exception as error:  # noqa: BLE001 - whatever fails, the run gets its terminal event
            return await self._ended_by(leg, error, span)

    async def _ended_by(self, leg: Leg, error: BaseException, span: Span) -> LegEnd:
        match error:
            case RunCancelRequested(by=by):
                return await self._cancel(leg, by)
            case Fenced():
                return LegEnd.FENCED
            case ServiceError():
                retryable = isinstance(error, ModelError) and error.retryable
                return await self._fail(leg, error.reason, error.message, retryable=retryable)
            case _:
                span.record_exception(error)
                _log.error("run failed", exc_info=error, extra={"run_id": leg.spec.run_id})
                trace_id = f"{span.get_span_context().trace_id:032x}"
                text = f"The service failed; its log has the details under trace {trace_id}."
                return await self._fail(leg, "INTERNAL", text, retryable=True)

    async def _stopped(self, leg: Leg, stop: Stop) -> LegEnd:
        """Write what a stopped leg owes; it may have ended at the same moment, and then owes nothing."""
        try:
            match stop.reason:
                case StopReason.CANCEL:
                    return await self._cancel(leg, stop.by)
                case StopReason.REFUSED:
                    return await self._fail(leg, stop.code, stop.message, retryable=False)
                case StopReason.DRAIN:
                    await leg.journal.hand_back()
                    return LegEnd.HANDED_BACK
                case StopReason.FENCED | None:
                    return LegEnd.FENCED
        except Fenced:
            return LegEnd.FENCED

    # --- resuming and pausing -------------------------------------------------------------------------------------

    def _resumed(self, leg: Leg, cause: str) -> None:
        paused_at, leg.progress.paused_at = leg.progress.paused_at, None
        paused = max(self._clock.now() - paused_at, timedelta()) if paused_at else timedelta()
        leg.journal.resumed(RunResumed(paused=paused, cause=cause))
        self._later(_tell, "run resumed", names.EVENT_RUN_RESUMED, leg.spec.run_id, {"cause": cause})

    async def _pause(self, leg: Leg) -> LegEnd:
        pending = leg.progress.pending_calls()
        deadlines = [p.deadline for p in leg.progress.waiting if p.deadline]
        leg.progress.paused_at = self._clock.now()
        leg.progress.traceparent = _traceparent(leg)
        leg.journal.delta(StageChanged(stage=Stage.WAITING, text="Waiting for a decision"))
        await leg.journal.fact(
            RunPaused(pending=pending, deadline=min(deadlines, default=None)),
            checkpoint=leg.checkpoint(),
            state=RunState.PAUSED,
            pending=pending,
            usage=leg.progress.spent.usage,
            release=True,
        )
        self._later(_tell, "run paused", names.EVENT_RUN_PAUSED, leg.spec.run_id, {})
        return LegEnd.PAUSED

    # --- the one terminal event -----------------------------------------------------------------------------------

    async def _complete(self, leg: Leg, reply: ModelReply | None, finish_reason: str) -> LegEnd:
        text = leg.progress.answer
        citations, unknown = leg.progress.evidence.citations(text)
        leg.count_time()
        event = RunCompleted(
            message_id=leg.spec.answer_message_id,
            text=text,
            value_json=reply.value_json if reply else b"",
            citations=citations,
            usage=leg.progress.spent.usage,
            finish_reason=reply.finish_reason if reply else finish_reason,
            unknown_citations=unknown,
            spent=leg.progress.spent,
        )
        await self._finish(leg, event, self._turn(leg, ""), "")
        return LegEnd.COMPLETED

    async def _fail(self, leg: Leg, reason: str, message: str, *, retryable: bool) -> LegEnd:
        await self._withdraw(leg)
        citations, _ = leg.progress.evidence.citations(leg.progress.answer)
        partial = leg.progress.answer
        event = RunFailed(
            reason=reason,
            message=message,
            retryable=retryable,
            message_id=leg.spec.answer_message_id if partial else "",
            partial_text=partial,
            citations=citations,
            usage=leg.progress.spent.usage,
        )
        await self._finish(leg, event, self._turn(leg, partial), reason)
        return LegEnd.FAILED

    async def _cancel(self, leg: Leg, by: str) -> LegEnd:
        await self._withdraw(leg)
        citations, _ = leg.progress.evidence.citations(leg.progress.answer)
        partial = leg.progress.answer
        event = RunCancelled(
            cancelled_by=by,
            message_id=leg.spec.answer_message_id if partial else "",
            partial_text=partial,
            citations=citations,
            usage=leg.progress.spent.usage,
        )
        await self._finish(leg, event, self._turn(leg, partial), "")
        return LegEnd.CANCELLED

    async def _finish(self, leg: Leg, event: Terminal, messages: tuple[Message, ...], failure: str) -> None:
        stored = messages if leg.spec.conversation_id else ()
        memory = leg.dedup.remember()
        await leg.journal.finish(event, messages=stored, tool_memory=memory.encode() if memory else None)
        fields = {"outcome": type(event).__name__, "reason": failure}
        self._later(_tell, "run ended", names.EVENT_RUN_COMPLETED, leg.spec.run_id, fields)

    async def _withdraw(self, leg: Leg) -> None:
        """Withdraw open requests; a service that does not answer must not keep the run from ending."""
        try:
            async with asyncio.timeout(1.0):
                await self._consents.withdraw(leg)
        except (ServiceError, TimeoutError) as error:
            _log.warning("open requests could not be withdrawn: %s", error)

    def _turn(self, leg: Leg, partial: str) -> tuple[Message, ...]:
        """Return this turn's messages after the user's, the last answer under its promised id."""
        turn = [m for m in leg.progress.messages[leg.progress.turn_start :] if m.role is not Role.USER]
        if partial and not (turn and turn[-1].role is Role.ASSISTANT and not turn[-1].tool_calls):
            turn.append(Message(role=Role.ASSISTANT, parts=(TextPart(text=partial),)))
        now = self._clock.now()
        ids = [self._ids.new() for _ in turn[:-1]] + [leg.spec.answer_message_id]
        return tuple(replace(m, message_id=i, created_at=now) for m, i in zip(turn, ids, strict=False))

    def _window(self, spec: RunSpec) -> int:
        """Return the model's window; 0 when the model left the catalogue, which the first call will say."""
        try:
            return self._catalogue.get(spec.model).window
        except ServiceError:
            return 0

    # --- tracing --------------------------------------------------------------------------------------------------

    def _open_span(self, journal: RunJournal, spec: RunSpec, progress: Progress) -> Span:
        """Open the leg's span; a later leg links to the one before."""
        links = []
        if progress.traceparent:
            before = _propagator.extract({"traceparent": progress.traceparent})
            links.append(Link(trace.get_current_span(before).get_span_context()))
        return self._tracer.start_span(
            f"{names.SPAN_INVOKE_AGENT} {spec.agent.name}",
            links=links,
            attributes={
                names.GEN_AI_OPERATION_NAME: names.SPAN_INVOKE_AGENT,
                names.GEN_AI_AGENT_NAME: spec.agent.name,
                names.GEN_AI_AGENT_ID: spec.agent.agent_id,
                names.GEN_AI_CONVERSATION_ID: spec.conversation_id,
                names.RUN_ID: spec.run_id,
                names.RUN_ATTEMPT: journal.attempt,
                names.TENANT: spec.principal.tenant,
            },
        )


def _tell_started(spec: RunSpec) -> None:
    fields = {"conversation_id": spec.conversation_id, "agent": spec.agent.name, "model": spec.model}
    _tell("run started", names.EVENT_RUN_STARTED, spec.run_id, fields)


def _tell(what: str, event: str, run_id: str, fields: Mapping[str, str]) -> None:
    _log.info(what, extra={"event": event, "run_id": run_id, **fields})


def _traceparent(leg: Leg) -> str:
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, context=leg.parent)
    return carrier.get("traceparent", "")


def _root(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the failure that a group of them is about: a stop before a lost lease before anything else."""
    flat: list[BaseException] = []
    stack: list[BaseException] = [group]
    while stack:
        error = stack.pop()
        if isinstance(error, BaseExceptionGroup):
            stack.extend(error.exceptions)
        else:
            flat.append(error)
    for kind in (RunCancelRequested, Fenced, ServiceError):
        for error in flat:
            if isinstance(error, kind):
                return error
    return flat[0]
