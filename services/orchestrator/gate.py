"""The one gate: every call of every agent goes through here, and there is no second way to execute a tool.

Known → valid → not a duplicate → within budget → approved → executed (deadline, cancellation, idempotency key) → cut →
evidence → journal. Each refusal is a result that the model can read and act on, and an event.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from services.chassis.errors import ServiceError
from services.orchestrator import outcomes
from services.orchestrator.carrying import Admitted, Carrying, Turn
from services.orchestrator.checks import (
    ArgumentsRefused,
    parse_arguments,
    unknown_tool,
)
from services.orchestrator.consent import Answered, Consent, Consents, Continued, Granted, Refused, Waiting
from services.orchestrator.dedup import call_key
from services.orchestrator.domain.events import (
    PauseKind,
    ToolStatus,
)
from services.orchestrator.domain.state import Pending
from services.orchestrator.guardrails.guards import Guards
from services.orchestrator.leg import Leg
from services.orchestrator.ports import ApprovalRecord, Approvals, GateDecision, GateVerdict
from services.orchestrator.tools.ports import Consent as ToolConsent
from services.orchestrator.tools.ports import Effect, Tool, Toolbox, ToolDefinition

_log = logging.getLogger(__name__)


class Gate:
    """Works off the calls of a round, at most `parallel_calls` at once."""

    def __init__(
        self,
        *,
        tools: Toolbox,
        approvals: Approvals,
        consents: Consents,
        carrying: Carrying,
        guards: Guards | None = None,
        parallel_calls: int = 8,
    ) -> None:
        self._tools = tools
        self._approvals = approvals
        self._consents = consents
        self._carrying = carrying
        self._guards = guards or Guards(())
        self._parallel_calls = parallel_calls

    async def work_off(self, leg: Leg) -> None:
        """Bring every open call of the round as far as it can go: afterwards each is settled, or waits for a decision.

        Independent calls run side by side within a bound. Raises RunCancelRequested when the run is to stop, and what
        else stops a call; where several ran, in a group.
        """
        open_calls = [(i, p) for i, p in enumerate(leg.progress.pending) if p.result is None]
        records = await self._records(leg)
        admitted, twins = await self._admit_all(leg, open_calls)
        slots = asyncio.Semaphore(self._parallel_calls)
        read = {entry.order: asyncio.Event() for entry in admitted}
        brought = []
        for entry in admitted:
            earlier = [event for order, event in read.items() if order < entry.order]
            turn = Turn(earlier=earlier, done=read[entry.order])
            brought.append(self._bring(leg, entry, records, slots, turn))
        await _together(brought)
        for order, pending in twins:
            text = f"'{pending.call.name}' stands twice in this round with the same arguments; it ran once, see above."
            self._carrying.settle(leg, leg.progress.pending[order], ToolStatus.DUPLICATE, text)

    async def abandon(self, leg: Leg) -> None:
        """Settle the open calls of a step that is given up, and withdraw what it asked for.

        A call that was at work is told as cancelled, with an effect of its own as unknown: it is not repeated.
        """
        try:
            await self._consents.withdraw(leg)
        except ServiceError as error:
            _log.warning("open requests could not be withdrawn: %s", error.message)
        for pending in leg.progress.pending:
            if pending.result is not None:
                continue
            tool = self._tools.get(pending.call.name)
            if pending.started and (tool is None or tool.definition.effect is Effect.SIDE_EFFECT):
                text = outcomes.outcome_unknown(pending.call.name)
                self._carrying.settle(leg, pending, ToolStatus.OUTCOME_UNKNOWN, text)
            else:
                self._carrying.settle(leg, pending, ToolStatus.CANCELLED, outcomes.given_up(pending.call.name))

    async def direct_output(self, leg: Leg) -> str | None:
        """Return the result that is itself the answer, when a call of the round has one; None when none has."""
        callers = {spec.name for spec in leg.spec.tools if spec.client_side}
        for pending in leg.progress.pending:
            if pending.status is not ToolStatus.COMPLETED or pending.result is None or pending.call.name in callers:
                continue
            tool, _ = await self._find(leg, pending.call.name)
            if tool is not None and tool.definition.direct_output:
                return pending.result.text
        return None

    async def _records(self, leg: Leg) -> dict[str, ApprovalRecord]:
        asked = [p.approval_id for p in leg.progress.waiting if p.approval_id]
        known = {approval_id: leg.decided[approval_id] for approval_id in asked if approval_id in leg.decided}
        unknown = [approval_id for approval_id in asked if approval_id not in known]
        return known | await self._approvals.get(leg.spec.principal, unknown) if unknown else known

    # --- known, valid, not a duplicate, within budget ------------------------------------------------------------

    async def _admit_all(
        self, leg: Leg, open_calls: list[tuple[int, Pending]]
    ) -> tuple[list[Admitted], list[tuple[int, Pending]]]:
        admitted: list[Admitted] = []
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

    async def _admit(self, leg: Leg, order: int, pending: Pending) -> Admitted | None:
        """Return the call when it may go on; settle it and return None when it is refused."""
        call = pending.call
        spec = next((s for s in leg.spec.tools if s.name == call.name), None)
        tool: Tool | None = None
        if spec is not None and not spec.client_side:
            tool, missing = await self._find(leg, call.name)
            if tool is None:
                self._gone(leg, pending, missing)
                return None
        if spec is None:
            leg.progress.unknown_tools += 1
            offered = [s.name for s in leg.spec.tools]
            text = unknown_tool(call.name, offered, leg.progress.unknown_tools)
            self._carrying.settle(leg, pending, ToolStatus.UNKNOWN_TOOL, text)
            return None
        try:
            arguments = parse_arguments(call, spec.parameters_json)
        except ArgumentsRefused as error:
            text = f"'{call.name}' did not run: {error}. Correct it and call again."
            self._carrying.settle(leg, pending, ToolStatus.INVALID, text)
            return None
        if not pending.arguments_digest:  # not counted yet: neither asked for nor started in an earlier leg
            if tool is not None and (why := leg.dedup.refusal(tool.definition, call.arguments_json)):
                self._carrying.settle(leg, pending, ToolStatus.DUPLICATE, why)
                return None
            if tool is not None and (why := _too_often(leg, tool.definition, call.call_id)):
                self._carrying.settle(leg, pending, ToolStatus.OVER_BUDGET, why)
                return None
            if why := leg.cap_reached(rounds=False):
                text = f"'{call.name}' did not run: {why}. Answer with what you have."
                self._carrying.settle(leg, pending, ToolStatus.OVER_BUDGET, text)
                return None
            leg.spend(tool_calls=1)
            pending = replace(pending, arguments_digest=_digest(call.arguments_json))
            leg.progress.settle(pending)
        return Admitted(
            order=order, pending=pending, tool=tool, parameters_json=spec.parameters_json, arguments=arguments
        )

    async def _find(self, leg: Leg, name: str) -> tuple[Tool | None, str]:
        """Return the tool, or why it is not there although it was offered."""
        try:
            tool = await self._tools.find(leg.spec.principal, name)
        except ServiceError as error:
            return None, error.message
        return tool, "" if tool is not None else f"'{name}' is no longer there"

    def _gone(self, leg: Leg, pending: Pending, missing: str) -> None:
        """Settle a call whose tool was offered and is gone or out of reach."""
        if pending.started:
            status, text = ToolStatus.OUTCOME_UNKNOWN, outcomes.outcome_unknown(pending.call.name)
        else:
            status, text = ToolStatus.FAILED, f"'{pending.call.name}' did not run: {missing}. Go on without it."
        self._carrying.settle(leg, pending, status, text)

    # --- approved ------------------------------------------------------------------------------------------------

    async def _bring(
        self,
        leg: Leg,
        entry: Admitted,
        records: Mapping[str, ApprovalRecord],
        slots: asyncio.Semaphore,
        turn: Turn,
    ) -> None:
        try:
            while True:
                consent = await self._consent(leg, entry, records)
                pending = _current(leg, entry)
                match consent:
                    case Waiting():
                        return
                    case Refused(status=status, text=text):
                        leg.spend(tool_calls=-1)
                        self._carrying.settle(leg, pending, status, text)
                        return
                    case Answered(text=text, failed=failed):
                        status = ToolStatus.FAILED if failed else ToolStatus.COMPLETED
                        said = await self._guards.answer(outcomes.clean(text), leg.spec.principal.tenant)
                        self._carrying.settle(leg, pending, status, said)
                        return
                    case Granted() | Continued():
                        async with slots:
                            asked = await self._carrying.execute(leg, entry, pending, consent, turn)
                        if asked is None:
                            return
                        # The tool has a question of its own: the call waits for it like for any other decision.
                        await self._consents.pose(leg, _current(leg, entry), asked)
                        records = {}
        finally:
            turn.done.set()

    async def _consent(self, leg: Leg, entry: Admitted, records: Mapping[str, ApprovalRecord]) -> Consent:
        pending = _current(leg, entry)
        if pending.started and pending.pause_kind is None:
            return Granted()
        if pending.tool_state:
            left = pending.deadline - leg.clock.now() if pending.deadline else None
            decision = GateDecision(
                verdict=GateVerdict.ASK_ALWAYS, timeout=max(left, timedelta(seconds=1)) if left else None
            )
            record = records.get(pending.approval_id)
            return await self._consents.look(leg, pending, record, decision, entry.parameters_json)
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

    async def _decision(self, leg: Leg, entry: Admitted) -> GateDecision:
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


async def _together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all of it side by side; what is alone, as most rounds' one call is, needs no task of its own."""
    if len(work) == 1:
        await work[0]
        return
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)


def _current(leg: Leg, entry: Admitted) -> Pending:
    """Return the call as it stands now."""
    return next(p for p in leg.progress.pending if p.call.call_id == entry.pending.call.call_id)


def _too_often(leg: Leg, definition: ToolDefinition, call_id: str) -> str:
    """Return why a tool may not be called again in this turn; empty when it may."""
    if definition.per_turn is None:
        return ""
    turn = leg.progress.messages[leg.progress.turn_start :]
    calls = [call.call_id for message in turn for call in message.tool_calls if call.name == definition.name]
    # A call that the agent's template names stands in no message.
    if call_id not in calls or calls.index(call_id) < definition.per_turn:
        return ""
    return (
        f"'{definition.name}' may be called {definition.per_turn} times a turn and was; go on with your best judgement."
    )


def _digest(arguments_json: bytes) -> bytes:
    return hashlib.sha256(arguments_json).digest()
