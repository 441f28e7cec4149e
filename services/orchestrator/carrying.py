"""Carrying out a call that the gate let through: run it, number what it found, record what came of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Span, StatusCode, Tracer

from services.chassis import names
from services.chassis.canonical import canonical_json
from services.chassis.later import Telling, at_once
from services.orchestrator import outcomes
from services.orchestrator.checks import ArgumentsRefused, validate_arguments
from services.orchestrator.consent import Continued, Granted
from services.orchestrator.consult import Consultant
from services.orchestrator.domain.events import (
    ArtifactCreated,
    EvidenceAdded,
    Fact,
    Notice,
    ProgressStream,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
    ToolStatus,
)
from services.orchestrator.domain.messages import Evidence, ToolCall
from services.orchestrator.domain.state import Pending
from services.orchestrator.execution import Executor, ToolOverdue
from services.orchestrator.guardrails.framing import tool_result
from services.orchestrator.leading import Leading, is_leading
from services.orchestrator.leg import Leg
from services.orchestrator.metrics import RunMetrics
from services.orchestrator.surroundings import Consulting, mentioned
from services.orchestrator.tools.ports import (
    Effect,
    Resumed,
    Tool,
    ToolContext,
    ToolDefinition,
    ToolQuestions,
    ToolResult,
)

_log = logging.getLogger(__name__)
PREVIEW_CHARACTERS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A call that passed the gate's own checks. `order` is its place among the calls of the round."""

    order: int
    pending: Pending
    tool: Tool | None
    parameters_json: bytes
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The order of reading: findings are numbered once every earlier call is read or waits for a person."""

    earlier: list[asyncio.Event]
    done: asyncio.Event


class Carrying:
    """Executes calls and settles them.

    `result_characters` bounds one result for the model; `content` puts arguments and results on spans.
    """

    def __init__(
        self,
        executor: Executor,
        tracer: Tracer,
        metrics: RunMetrics,
        result_characters: int,
        *,
        content: bool = False,
        consultant: Consultant | None = None,
        later: Telling = at_once,
    ) -> None:
        self._executor = executor
        self._tracer = tracer
        self._metrics = metrics
        self._content = content
        self._consultant = consultant
        self._later = later
        self._result_characters = result_characters

    async def execute(
        self, leg: Leg, entry: Admitted, pending: Pending, consent: Granted | Continued, turn: Turn
    ) -> ToolQuestions | None:
        """Run a call and settle it, or return what the tool must ask the user before it can go on."""
        assert entry.tool is not None
        definition = entry.tool.definition
        resumed = None
        if isinstance(consent, Continued):
            resumed = Resumed(state=pending.tool_state, answers=consent.answers)
        elif pending.started and definition.effect is Effect.SIDE_EFFECT:
            self.settle(leg, pending, ToolStatus.OUTCOME_UNKNOWN, outcomes.outcome_unknown(definition.name))
            return None
        edited = consent.edited_json if isinstance(consent, Granted) and consent.edited_json else pending.edited_json
        arguments, arguments_json, note = entry.arguments, pending.call.arguments_json, ""
        if edited:
            try:
                arguments = validate_arguments(edited, entry.parameters_json)
            except ArgumentsRefused as error:
                text = f"A person changed the arguments, but they do not fit: {error}. It did not run."
                self.settle(leg, pending, ToolStatus.INVALID, text)
                return None
            arguments_json, note = edited, outcomes.edited(definition.name, edited)
        goes_on = resumed is not None or (pending.started and is_leading(entry.tool))
        pending = replace(
            pending, started=True, pause_kind=None, questions_json=b"", tool_state=b"", edited_json=edited
        )
        leg.progress.settle(pending)
        started = ToolCallStarted(call_id=pending.call.call_id, name=definition.name, arguments_json=arguments_json)
        facts = () if goes_on else (started,)
        if definition.effect is not Effect.READ:
            await leg.commit(*facts)
        elif facts:
            leg.begin_to_read(started)
        begun = leg.clock.monotonic()
        if is_leading(entry.tool):
            led = await self._lead(leg, entry.tool, arguments, pending)
            if led is None:
                return None  # it waits: the call stays open
            status, result = led
        else:
            status, result = await self._run(leg, entry.tool, arguments, pending, resumed)
        if result.questions is not None:
            return result.questions
        took = timedelta(seconds=leg.clock.monotonic() - begun)
        self._later(self._tell, leg.spec.run_id, pending.call, status, took)
        if status is ToolStatus.COMPLETED:
            leg.dedup.completed(definition, pending.call.arguments_json)
        await self._deliver(leg, pending, status, result, note, took, turn, definition)
        return None

    def _tell(self, run_id: str, call: ToolCall, status: ToolStatus, took: timedelta) -> None:
        outcome, seconds = status.name.lower(), took / timedelta(seconds=1)
        self._metrics.tool(call.name, outcome, seconds)
        _log.info(
            "tool finished",
            extra={
                "event": names.EVENT_TOOL_FINISHED,
                "run_id": run_id,
                "call_id": call.call_id,
                "tool": call.name,
                "outcome": outcome,
                "seconds": seconds,
            },
        )

    async def _run(
        self, leg: Leg, tool: Tool, arguments: Mapping[str, Any], pending: Pending, resumed: Resumed | None
    ) -> tuple[ToolStatus, ToolResult]:
        """Run a tool within its deadline; whatever it raises becomes a result, and an error in the trace."""
        definition = tool.definition
        span = self._span(leg, pending)
        context = self._context(leg, pending, resumed)
        status, result = ToolStatus.FAILED, ToolResult(text="", failed=True)
        try:
            result = await self._executor.run(tool.run(arguments, context), span, definition.deadline)
            if result.unknown:
                status = ToolStatus.OUTCOME_UNKNOWN
            else:
                status = ToolStatus.FAILED if result.failed else ToolStatus.COMPLETED
        except ToolOverdue:
            seconds = definition.deadline / timedelta(seconds=1)
            text = f"'{definition.name}' did not finish within {seconds:g} s and was stopped"
            if definition.effect is Effect.SIDE_EFFECT:
                text += ": whether it took effect is unknown. Tell the user so"
                status = ToolStatus.OUTCOME_UNKNOWN
            result = ToolResult(text=f"{text}.")
        except Exception as error:  # noqa: BLE001 - a tool may raise anything, and the run goes on
            _log.warning("tool failed", exc_info=error, extra={"event": names.EVENT_TOOL_FINISHED})
            span.record_exception(error)
            result = ToolResult(text=f"'{definition.name}' failed: {type(error).__name__}: {error}"[:2000])
        finally:
            if status is not ToolStatus.COMPLETED:
                span.set_status(StatusCode.ERROR)
            span.set_attribute(names.TOOL_OUTCOME, status.name.lower())
            span.set_attribute(names.TOOL_RESULT_BYTES, result.size)
            if self._content:
                span.set_attribute(names.GEN_AI_TOOL_CALL_ARGUMENTS, canonical_json(arguments).decode())
                span.set_attribute(names.GEN_AI_TOOL_CALL_RESULT, result.text)
            span.end()
        return status, result

    async def _lead(
        self, leg: Leg, tool: Leading, arguments: Mapping[str, Any], pending: Pending
    ) -> tuple[ToolStatus, ToolResult] | None:
        """Lead an agent that is called as a tool; its own caps and deadlines hold, not those of a tool."""
        span = self._span(leg, pending)
        outcome = "failed"
        try:
            with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
                result = await tool.lead(leg, pending.call.call_id, arguments)
            if result is None:
                outcome = "waiting"
                return None
            status = ToolStatus.FAILED if result.failed else ToolStatus.COMPLETED
            outcome = status.name.lower()
            return status, result
        finally:
            if outcome == "failed":
                span.set_status(StatusCode.ERROR)
            span.set_attribute(names.TOOL_OUTCOME, outcome)
            span.end()

    def _span(self, leg: Leg, pending: Pending) -> Span:
        return self._tracer.start_span(
            f"{names.SPAN_EXECUTE_TOOL} {pending.call.name}",
            context=leg.parent,
            attributes={
                names.GEN_AI_OPERATION_NAME: names.SPAN_EXECUTE_TOOL,
                names.GEN_AI_TOOL_NAME: pending.call.name,
                names.GEN_AI_TOOL_CALL_ID: pending.call.call_id,
                names.GEN_AI_TOOL_TYPE: "function",
            },
        )

    def _context(self, leg: Leg, pending: Pending, resumed: Resumed | None) -> ToolContext:
        call_id = pending.call.call_id

        def progress(stream: ProgressStream, text: str, fraction: float | None = None) -> None:
            piece = ToolCallProgress(call_id=call_id, stream=stream, text=outcomes.clean(text), fraction=fraction)
            leg.journal.delta(piece, step_id=leg.step_id)

        return ToolContext(
            run_id=leg.spec.run_id,
            call_id=call_id,
            key=f"{leg.spec.run_id}/{leg.progress.round}/{call_id}",
            principal=leg.spec.principal,
            conversation_id=leg.spec.conversation_id,
            sources=leg.spec.sources,
            searching=leg.spec.agent.searching,
            progress=progress,
            questions=tuple(m.text for m in leg.progress.messages if m.role.name == "USER"),
            mentioned=lambda text: mentioned(leg, text),
            consult=Consulting(leg, self._consultant) if self._consultant else None,
            # As for ask_user: a caller that ends runs for its own tools, or an unattended run, has nobody to answer.
            answerable=not leg.spec.unattended and not leg.spec.client_tools_end_run,
            resumed=resumed,
        )

    # --- cut, evidence, journal ----------------------------------------------------------------------------------

    async def _deliver(
        self,
        leg: Leg,
        pending: Pending,
        status: ToolStatus,
        result: ToolResult,
        note: str,
        took: timedelta,
        turn: Turn,
        definition: ToolDefinition,
    ) -> None:
        """Number what was found in the order in which the model will read it, then settle."""
        facts: list[Fact] = [Notice(code=code, text=text) for code, text in result.notices]
        read: tuple[Evidence, ...] = ()
        if result.findings:
            for event in turn.earlier:
                await event.wait()
            read, new = leg.progress.evidence.add(result.findings)
            facts += [EvidenceAdded(evidence=e, call_id=pending.call.call_id) for e in new]
        facts += [ArtifactCreated(artifact=a, call_id=pending.call.call_id) for a in result.artifacts]
        texts = (result.text, *outcomes.unnumbered(result.findings, read))
        body = outcomes.with_evidence("\n\n".join(outcomes.clean(text) for text in texts if text), read)
        limit = min(self._result_characters, leg.result_characters)
        shown = outcomes.cut("\n\n".join(t for t in (note, body) if t), limit)
        told = tool_result(definition.name, shown.text) if definition.foreign else shown.text
        message = outcomes.tool_message(pending.call, told, result.images)
        leg.progress.settle(pending.settled(status, message))
        facts.append(
            ToolCallFinished(
                call_id=pending.call.call_id,
                name=pending.call.name,
                status=status,
                preview=shown.text[:PREVIEW_CHARACTERS],
                artifacts=result.artifacts,
                duration=took,
                result_bytes=result.size,
                truncated=shown.truncated,
            )
        )
        # A read may run again after a crash; anything else must not, so its result is saved with the fact.
        if definition.effect is Effect.READ:
            leg.post(*facts)
        else:
            await leg.commit(*facts)

    def settle(self, leg: Leg, pending: Pending, status: ToolStatus, text: str) -> None:
        """Give a call a result without running it."""
        shown = outcomes.cut(text, self._result_characters)
        message = outcomes.tool_message(pending.call, shown.text)
        leg.progress.settle(pending.settled(status, message))
        leg.post(
            ToolCallFinished(
                call_id=pending.call.call_id,
                name=pending.call.name,
                status=status,
                preview=shown.text[:PREVIEW_CHARACTERS],
                result_bytes=len(text.encode(errors="replace")),
                truncated=shown.truncated,
            )
        )
