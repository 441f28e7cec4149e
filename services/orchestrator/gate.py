"""The one gate: every call of every agent goes through here, and there is no second way to execute a tool.

Known → valid → not a duplicate → within budget → approved → executed (deadline, cancellation, idempotency key) → cut →
evidence → journal. Each refusal is a result that the model can read and act on, and an event.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from opentelemetry.trace import StatusCode, Tracer

from services.chassis import names
from services.orchestrator import outcomes
from services.orchestrator.budget import exhausted
from services.orchestrator.checks import (
    ArgumentsRefused,
    parse_arguments,
    unknown_tool,
    validate_arguments,
)
from services.orchestrator.consent import Answered, Consent, Consents, Granted, Refused, Waiting
from services.orchestrator.dedup import call_key
from services.orchestrator.domain.events import (
    ArtifactCreated,
    EvidenceAdded,
    Fact,
    Notice,
    PauseKind,
    ProgressStream,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
    ToolStatus,
)
from services.orchestrator.domain.messages import Evidence
from services.orchestrator.domain.state import Pending
from services.orchestrator.execution import Executor, ToolOverdue
from services.orchestrator.leg import Leg
from services.orchestrator.metrics import RunMetrics
from services.orchestrator.ports import ApprovalRecord, Approvals, GateDecision, GateVerdict
from services.orchestrator.tools.ports import Consent as ToolConsent
from services.orchestrator.tools.ports import Effect, Tool, Toolbox, ToolContext, ToolDefinition, ToolResult

_log = logging.getLogger(__name__)
PREVIEW_CHARACTERS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """Bounds: calls of a round at once, characters of one result for the model."""

    parallel_calls: int = 8
    result_characters: int = 32_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Admitted:
    """A call that passed the gate's own checks. `order` is its place among the calls of the round."""

    order: int
    pending: Pending
    tool: Tool | None
    parameters_json: bytes
    arguments: Mapping[str, Any]


class Gate:
    """Works off the calls of a round."""

    def __init__(
        self,
        *,
        tools: Toolbox,
        approvals: Approvals,
        consents: Consents,
        executor: Executor,
        tracer: Tracer,
        metrics: RunMetrics,
        settings: GateSettings,
    ) -> None:
        self._tools = tools
        self._executor = executor
        self._approvals = approvals
        self._consents = consents
        self._tracer = tracer
        self._metrics = metrics
        self._settings = settings

    async def work_off(self, leg: Leg) -> None:
        """Bring every open call of the round as far as it can go: afterwards each is settled, or waits for a decision.

        Independent calls run side by side within a bound. Raises RunCancelRequested when the run is to stop.
        """
        open_calls = [(i, p) for i, p in enumerate(leg.progress.pending) if p.result is None]
        records = await self._records(leg)
        admitted, twins = await self._admit_all(leg, open_calls)
        slots = asyncio.Semaphore(self._settings.parallel_calls)
        read = {entry.order: asyncio.Event() for entry in admitted}
        async with asyncio.TaskGroup() as group:
            for entry in admitted:
                earlier = [event for order, event in read.items() if order < entry.order]
                turn = _Turn(earlier=earlier, done=read[entry.order])
                group.create_task(self._bring(leg, entry, records, slots, turn))
        for order, pending in twins:
            text = f"'{pending.call.name}' stands twice in this round with the same arguments; it ran once, see above."
            self._settle(leg, leg.progress.pending[order], ToolStatus.DUPLICATE, text)

    async def _records(self, leg: Leg) -> dict[str, ApprovalRecord]:
        asked = [p.approval_id for p in leg.progress.waiting if p.approval_id]
        return await self._approvals.get(leg.spec.principal, asked) if asked else {}

    # --- known, valid, not a duplicate, within budget ------------------------------------------------------------

    async def _admit_all(
        self, leg: Leg, open_calls: list[tuple[int, Pending]]
    ) -> tuple[list[_Admitted], list[tuple[int, Pending]]]:
        admitted: list[_Admitted] = []
        twins: list[tuple[int, Pending]] = []
        keys: set[bytes] = set()
        for order, pending in open_calls:
            entry = await self._admit(leg, order, pending)
            if entry is None:
                continue
            key = call_key(pending.call.name, pending.call.arguments_json)
            repeatable = entry.tool is not None and entry.tool.definition.repeatable
            if key in keys and not repeatable:
                leg.spend(tool_calls=-1)
                twins.append((order, pending))
                continue
            keys.add(key)
            admitted.append(entry)
        return admitted, twins

    async def _admit(self, leg: Leg, order: int, pending: Pending) -> _Admitted | None:
        """Return the call when it may go on; settle it and return None when it is refused."""
        call = pending.call
        spec = next((s for s in leg.spec.tools if s.name == call.name), None)
        tool = self._tools.get(call.name) if spec is not None and not spec.client_side else None
        if spec is None or (tool is None and not spec.client_side):
            leg.progress.unknown_tools += 1
            offered = [s.name for s in leg.spec.tools]
            text = unknown_tool(call.name, offered, leg.progress.unknown_tools)
            self._settle(leg, pending, ToolStatus.UNKNOWN_TOOL, text)
            return None
        try:
            arguments = parse_arguments(call, spec.parameters_json)
        except ArgumentsRefused as error:
            text = f"'{call.name}' did not run: {error}. Correct it and call again."
            self._settle(leg, pending, ToolStatus.INVALID, text)
            return None
        if not pending.arguments_digest:  # not counted yet: neither asked for nor started in an earlier leg
            if tool is not None and (why := leg.dedup.refusal(tool.definition, call.arguments_json)):
                self._settle(leg, pending, ToolStatus.DUPLICATE, why)
                return None
            if tool is not None and (why := _too_often(leg, tool.definition, call.call_id)):
                self._settle(leg, pending, ToolStatus.OVER_BUDGET, why)
                return None
            if why := exhausted(replace(leg.spec.budget, rounds=None), leg.progress.spent):
                text = f"'{call.name}' did not run: {why}. Answer with what you have."
                self._settle(leg, pending, ToolStatus.OVER_BUDGET, text)
                return None
            leg.spend(tool_calls=1)
            pending = replace(pending, arguments_digest=_digest(call.arguments_json))
            leg.progress.settle(pending)
        return _Admitted(
            order=order, pending=pending, tool=tool, parameters_json=spec.parameters_json, arguments=arguments
        )

    # --- approved ------------------------------------------------------------------------------------------------

    async def _bring(
        self,
        leg: Leg,
        entry: _Admitted,
        records: Mapping[str, ApprovalRecord],
        slots: asyncio.Semaphore,
        turn: _Turn,
    ) -> None:
        try:
            consent = await self._consent(leg, entry, records)
            pending = next(p for p in leg.progress.pending if p.call.call_id == entry.pending.call.call_id)
            match consent:
                case Waiting():
                    return
                case Refused(status=status, text=text):
                    leg.spend(tool_calls=-1)
                    self._settle(leg, pending, status, text)
                case Answered(text=text, failed=failed):
                    status = ToolStatus.FAILED if failed else ToolStatus.COMPLETED
                    self._settle(leg, pending, status, outcomes.clean(text))
                case Granted(edited_json=edited):
                    async with slots:
                        await self._execute(leg, entry, pending, edited, turn)
        finally:
            turn.done.set()

    async def _consent(self, leg: Leg, entry: _Admitted, records: Mapping[str, ApprovalRecord]) -> Consent:
        pending = entry.pending
        if pending.started:
            return Granted()
        if entry.tool is None and leg.spec.client_tools_end_run:
            leg.progress.settle(replace(pending, pause_kind=PauseKind.CLIENT_TOOL))
            return Waiting()
        if pending.pause_kind is not None:
            decision = await self._decision(leg, entry)
            record = records.get(pending.approval_id)
            return await self._consents.look(leg, pending, record, decision, entry.parameters_json)
        if entry.tool is None:
            decision = GateDecision(verdict=GateVerdict.ASK)
            return await self._consents.ask(leg, pending, PauseKind.CLIENT_TOOL, decision, entry.parameters_json)
        decision = await self._decision(leg, entry)
        match decision.verdict:
            case GateVerdict.ALLOW:
                return Granted()
            case GateVerdict.DENY:
                text = outcomes.forbidden(pending.call.name, decision.policy)
                return Refused(status=ToolStatus.DENIED, text=text)
            case GateVerdict.ASK | GateVerdict.ASK_ALWAYS | GateVerdict.QUORUM:
                kind = entry.tool.definition.pause_kind
                return await self._consents.ask(leg, pending, kind, decision, entry.parameters_json)

    async def _decision(self, leg: Leg, entry: _Admitted) -> GateDecision:
        """Return the policy's verdict; a built-in that is allowed by default and named by no policy asks nobody."""
        if entry.tool is None:
            return GateDecision(verdict=GateVerdict.ASK)
        definition = entry.tool.definition
        if definition.pause_kind is not PauseKind.APPROVAL:
            return GateDecision(verdict=GateVerdict.ASK_ALWAYS, timeout=definition.answer_time)
        bindings = leg.spec.agent.tools
        named = any(b.tool == definition.name or b.tool.endswith("*") for b in bindings)
        if definition.consent is ToolConsent.ALLOW and not named:
            return GateDecision(verdict=GateVerdict.ALLOW)
        return await self._approvals.evaluate(
            leg.spec.principal,
            tool=definition.name,
            consent=definition.consent,
            arguments_json=entry.pending.call.arguments_json,
            bindings=bindings,
            conversation_id=leg.spec.conversation_id,
            unattended=leg.spec.unattended,
        )

    # --- executed ------------------------------------------------------------------------------------------------

    async def _execute(self, leg: Leg, entry: _Admitted, pending: Pending, edited: bytes, turn: _Turn) -> None:
        assert entry.tool is not None
        definition = entry.tool.definition
        if pending.started and definition.effect is Effect.SIDE_EFFECT:
            self._settle(leg, pending, ToolStatus.OUTCOME_UNKNOWN, outcomes.outcome_unknown(definition.name))
            return
        arguments, arguments_json, note = entry.arguments, pending.call.arguments_json, ""
        if edited:
            try:
                arguments = validate_arguments(edited, entry.parameters_json)
            except ArgumentsRefused as error:
                text = f"A person changed the arguments, but they do not fit: {error}. It did not run."
                self._settle(leg, pending, ToolStatus.INVALID, text)
                return
            arguments_json, note = edited, outcomes.edited(definition.name, edited)
        pending = replace(pending, started=True, pause_kind=None)
        leg.progress.settle(pending)
        started = ToolCallStarted(call_id=pending.call.call_id, name=definition.name, arguments_json=arguments_json)
        if definition.effect is Effect.READ:
            await leg.record(started)
        else:
            await leg.commit(started)
        begun = leg.clock.monotonic()
        status, result = await self._run(leg, entry.tool, arguments, pending)
        took = timedelta(seconds=leg.clock.monotonic() - begun)
        self._metrics.tool(definition.name, status.name.lower(), took / timedelta(seconds=1))
        _log.info(
            "tool finished",
            extra={
                "event": names.EVENT_TOOL_FINISHED,
                "run_id": leg.spec.run_id,
                "call_id": pending.call.call_id,
                "tool": definition.name,
                "outcome": status.name.lower(),
                "seconds": took / timedelta(seconds=1),
            },
        )
        if status is ToolStatus.COMPLETED:
            leg.dedup.completed(definition, pending.call.arguments_json)
        await self._deliver(leg, pending, status, result, note, took, turn, effect=definition.effect)

    async def _run(
        self, leg: Leg, tool: Tool, arguments: Mapping[str, Any], pending: Pending
    ) -> tuple[ToolStatus, ToolResult]:
        """Run a tool within its deadline; whatever it raises becomes a result, and an error in the trace."""
        definition = tool.definition
        span = self._tracer.start_span(
            f"{names.SPAN_EXECUTE_TOOL} {definition.name}",
            context=leg.parent,
            attributes={
                names.GEN_AI_OPERATION_NAME: names.SPAN_EXECUTE_TOOL,
                names.GEN_AI_TOOL_NAME: definition.name,
                names.GEN_AI_TOOL_CALL_ID: pending.call.call_id,
                names.GEN_AI_TOOL_TYPE: "function",
            },
        )
        context = self._context(leg, pending)
        status, result = ToolStatus.FAILED, ToolResult(text="", failed=True)
        try:
            result = await self._executor.run(tool.run(arguments, context), span, definition.deadline)
            status = ToolStatus.FAILED if result.failed else ToolStatus.COMPLETED
        except ToolOverdue:
            seconds = definition.deadline / timedelta(seconds=1)
            result = ToolResult(text=f"'{definition.name}' did not finish within {seconds:g} s and was stopped.")
        except Exception as error:  # noqa: BLE001 - a tool may raise anything, and the run goes on
            _log.warning("tool failed", exc_info=error, extra={"event": names.EVENT_TOOL_FINISHED})
            span.record_exception(error)
            result = ToolResult(text=f"'{definition.name}' failed: {type(error).__name__}: {error}"[:2000])
        finally:
            if status is not ToolStatus.COMPLETED:
                span.set_status(StatusCode.ERROR)
            span.set_attribute(names.TOOL_OUTCOME, status.name.lower())
            span.set_attribute(names.TOOL_RESULT_BYTES, len(result.text.encode(errors="replace")))
            span.end()
        return status, result

    def _context(self, leg: Leg, pending: Pending) -> ToolContext:
        call_id = pending.call.call_id

        def progress(stream: ProgressStream, text: str) -> None:
            leg.journal.delta(
                ToolCallProgress(call_id=call_id, stream=stream, text=outcomes.clean(text)), step_id=leg.step_id
            )

        return ToolContext(
            run_id=leg.spec.run_id,
            call_id=call_id,
            key=f"{leg.spec.run_id}/{leg.progress.round}/{call_id}",
            principal=leg.spec.principal,
            conversation_id=leg.spec.conversation_id,
            sources=leg.spec.sources,
            progress=progress,
            questions=tuple(m.text for m in leg.progress.messages if m.role.name == "USER"),
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
        turn: _Turn,
        *,
        effect: Effect,
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
        body = outcomes.with_evidence(outcomes.clean(result.text), read)
        limit = min(self._settings.result_characters, leg.result_characters)
        shown = outcomes.cut("\n\n".join(t for t in (note, body) if t), limit)
        message = outcomes.tool_message(pending.call, shown.text, result.images)
        leg.progress.settle(pending.settled(status, message))
        facts.append(
            ToolCallFinished(
                call_id=pending.call.call_id,
                name=pending.call.name,
                status=status,
                preview=shown.text[:PREVIEW_CHARACTERS],
                artifacts=result.artifacts,
                duration=took,
                result_bytes=len(result.text.encode(errors="replace")),
                truncated=shown.truncated,
            )
        )
        # A read may run again after a crash; anything else must not, so its result is saved with the fact.
        if effect is Effect.READ:
            leg.post(*facts)
        else:
            await leg.commit(*facts)

    def _settle(self, leg: Leg, pending: Pending, status: ToolStatus, text: str) -> None:
        """Give a call a result without running it."""
        shown = outcomes.cut(text, self._settings.result_characters)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """The order of reading: findings are numbered once every earlier call is read or waits for a person."""

    earlier: list[asyncio.Event]
    done: asyncio.Event


def _too_often(leg: Leg, definition: ToolDefinition, call_id: str) -> str:
    """Return why a tool may not be called again in this turn; empty when it may."""
    if definition.per_turn is None:
        return ""
    turn = leg.progress.messages[leg.progress.turn_start :]
    calls = [call.call_id for message in turn for call in message.tool_calls if call.name == definition.name]
    if calls.index(call_id) < definition.per_turn:
        return ""
    return (
        f"'{definition.name}' may be called {definition.per_turn} times a turn and was; go on with your best judgement."
    )


def _digest(arguments_json: bytes) -> bytes:
    return hashlib.sha256(arguments_json).digest()
