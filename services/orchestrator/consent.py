"""Asking before acting: how a call comes to wait for a decision, and what a decision makes of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from opentelemetry.trace import Tracer

from services.chassis import names
from services.chassis.canonical import canonical_json
from services.chassis.identity import Principal
from services.orchestrator import outcomes
from services.orchestrator.domain.events import (
    ApprovalRequested,
    ApprovalResolved,
    ClientToolRequested,
    Fact,
    PauseKind,
    QuestionsAnswered,
    QuestionsAsked,
    Resolution,
    ToolStatus,
)
from services.orchestrator.domain.state import Pending
from services.orchestrator.leg import Leg
from services.orchestrator.ports import (
    ApprovalRecord,
    ApprovalRequest,
    Approvals,
    GateDecision,
    RecordState,
    RequestKind,
)
from services.orchestrator.tools.ask_user import ANSWERED, question_protos
from services.orchestrator.tools.ports import ToolQuestions

_KINDS = {
    PauseKind.APPROVAL: RequestKind.TOOL,
    PauseKind.QUESTION: RequestKind.QUESTION,
    PauseKind.CONTINUE: RequestKind.CONTINUE,
    PauseKind.CLIENT_TOOL: RequestKind.CLIENT_TOOL,
}
_RESOLUTIONS = {
    RecordState.APPROVED: Resolution.APPROVED,
    RecordState.EDITED: Resolution.EDITED,
    RecordState.DENIED: Resolution.DENIED,
    RecordState.EXPIRED: Resolution.EXPIRED,
    RecordState.CANCELLED: Resolution.CANCELLED,
    RecordState.ANSWERED: Resolution.ANSWERED,
}


def approval_id(run_id: str, round_number: int, call_id: str) -> str:
    """Return the id of the request for one call, so that asking twice is asking once."""
    return hashlib.sha256(f"{run_id}/{round_number}/{call_id}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The call does not run; the model is told `text`."""

    status: ToolStatus
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The call runs, with `edited_json` in place of its arguments when a person changed them."""

    edited_json: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The call is answered without running here; the model is told `text`."""

    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """A tool goes on in the middle of its work with the answers to its questions; None when nobody answered."""

    answers: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Nobody has decided yet."""


Consent = Refused | Granted | Answered | Continued | Waiting


class Consents:
    """Requests for decisions of one orchestrator."""

    def __init__(self, approvals: Approvals, tracer: Tracer) -> None:
        self._approvals = approvals
        self._tracer = tracer
        # Told (principal, tool, state) of each question of a tool that is withdrawn.
        self.abandoned: Callable[[Principal, str, bytes], Awaitable[None]] = _nobody

    async def ask(
        self, leg: Leg, pending: Pending, kind: PauseKind, decision: GateDecision, parameters_json: bytes
    ) -> Consent:
        """Ask for a decision.

        The reply stands in a checkpoint already, then comes the request, then the journal: after a crash in between the
        same request is made again under its derived id, not another one.
        """
        now = leg.clock.now()
        pending = replace(
            pending,
            pause_kind=kind,
            approval_id=approval_id(leg.spec.run_id, leg.progress.round, pending.call.call_id),
            asked_at=now,
            deadline=now + decision.timeout if decision.timeout else None,
        )
        leg.progress.settle(pending)
        record = await self._request(leg, pending, decision, parameters_json)
        return self._became(leg, pending, record, parameters_json)

    async def pose(self, leg: Leg, pending: Pending, asked: ToolQuestions) -> None:
        """Put a tool's own questions in the call's place, and save them with the state with which it goes on."""
        now = leg.clock.now()
        asks = pending.asks + 1
        posed = replace(
            pending,
            pause_kind=PauseKind.QUESTION,
            approval_id=approval_id(leg.spec.run_id, leg.progress.round, f"{pending.call.call_id}#{asks}"),
            asked_at=now,
            deadline=now + asked.answer_time,
            announced=False,
            questions_json=asked.questions_json,
            tool_state=asked.state,
            asks=asks,
        )
        leg.progress.settle(posed)
        await leg.commit()

    async def look(
        self,
        leg: Leg,
        pending: Pending,
        record: ApprovalRecord | None,
        decision: GateDecision,
        parameters_json: bytes,
    ) -> Consent:
        """Return what became of a request made earlier; make it again when it was never received."""
        if record is None:
            record = await self._request(leg, pending, decision, parameters_json)
        return self._became(leg, pending, record, parameters_json)

    def _became(self, leg: Leg, pending: Pending, record: ApprovalRecord, parameters_json: bytes) -> Consent:
        """Tell of a request that waits, once, or of its decision."""
        if record.state is not RecordState.PENDING:
            return self._decided(leg, pending, record)
        if not pending.announced:
            leg.progress.settle(replace(pending, deadline=record.deadline, announced=True))
            # With the state that says so, in one piece: a crash in between would tell of it twice. Mostly the pause
            # comes right behind it, and takes it along.
            leg.save_soon(_asked(pending, record, parameters_json))
        return Waiting()

    async def _request(
        self, leg: Leg, pending: Pending, decision: GateDecision, parameters_json: bytes
    ) -> ApprovalRecord:
        kind = pending.pause_kind or PauseKind.APPROVAL
        request = ApprovalRequest(
            approval_id=pending.approval_id,
            kind=_KINDS[kind],
            run_id=leg.spec.run_id,
            round=leg.progress.round,
            call_id=pending.call.call_id,
            conversation_id=leg.spec.conversation_id,
            tool=pending.call.name,
            arguments_json=pending.call.arguments_json,
            parameters_json=parameters_json,
            reason=pending.call.reason,
            agent=leg.spec.agent.name,
            decision=decision,
            questions_json=_questions(pending) if kind is PauseKind.QUESTION else b"",
        )
        return await self._approvals.request(leg.spec.principal, request)

    def _decided(self, leg: Leg, pending: Pending, record: ApprovalRecord) -> Consent:
        leg.post(*_resolved(pending, record, leg))
        self._trace_wait(leg, pending, record)
        if pending.tool_state:
            return Continued(answers=_given(record))
        tool = pending.call.name
        match record.state:
            case RecordState.APPROVED | RecordState.EDITED:
                if record.arguments_digest != pending.arguments_digest.hex():
                    return Refused(status=ToolStatus.INVALID, text=outcomes.digest_changed(tool))
                return Granted(edited_json=record.edited_arguments_json)
            case RecordState.ANSWERED:
                return _answer(pending, record)
            case RecordState.DENIED:
                return Refused(status=ToolStatus.DENIED, text=outcomes.denied(tool, record.comment))
            case RecordState.EXPIRED:
                return Refused(status=ToolStatus.EXPIRED, text=outcomes.expired(tool))
            case RecordState.CANCELLED:
                return Refused(status=ToolStatus.CANCELLED, text=outcomes.withdrawn(tool))
            case RecordState.PENDING:
                return Waiting()

    def _trace_wait(self, leg: Leg, pending: Pending, record: ApprovalRecord) -> None:
        """Leave a span over the time people took, so that it is never counted as machine time."""
        asked = pending.asked_at or leg.clock.now()
        decided = record.decided_at or leg.clock.now()
        span = self._tracer.start_span(
            names.SPAN_APPROVAL_WAIT,
            context=leg.parent,
            start_time=int(asked.timestamp() * 1e9),
            attributes={names.APPROVAL_OUTCOME: record.state.value, names.GEN_AI_TOOL_CALL_ID: pending.call.call_id},
        )
        span.end(end_time=max(int(decided.timestamp() * 1e9), int(asked.timestamp() * 1e9)))

    async def withdraw(self, leg: Leg) -> None:
        """Withdraw every request that still waits."""
        for pending in leg.progress.waiting:
            if pending.approval_id:
                await self._approvals.cancel(leg.spec.principal, pending.approval_id)
            if pending.tool_state:
                await self.abandoned(leg.spec.principal, pending.call.name, pending.tool_state)


async def _nobody(principal: Principal, tool: str, state: bytes) -> None:
    """Stand in until someone wants to know."""


def _asked(pending: Pending, record: ApprovalRecord, parameters_json: bytes) -> Fact:
    call = pending.call
    match pending.pause_kind:
        case PauseKind.QUESTION:
            return QuestionsAsked(
                approval_id=pending.approval_id,
                call_id=call.call_id,
                questions_json=_questions(pending),
                deadline=record.deadline,
            )
        case PauseKind.CLIENT_TOOL | PauseKind.CONTINUE:
            return ClientToolRequested(call=call, approval_id=pending.approval_id, deadline=record.deadline)
        case PauseKind.APPROVAL | None:
            return ApprovalRequested(
                approval_id=pending.approval_id,
                call_id=call.call_id,
                tool=call.name,
                arguments_json=call.arguments_json,
                arguments_digest=pending.arguments_digest.hex(),
                reason=call.reason,
                deadline=record.deadline,
                policy=record.policy,
                parameters_json=parameters_json,
            )


def _resolved(pending: Pending, record: ApprovalRecord, leg: Leg) -> list[Fact]:
    asked = pending.asked_at or leg.clock.now()
    waited = max((record.decided_at or leg.clock.now()) - asked, timedelta())
    facts: list[Fact] = []
    if pending.pause_kind is PauseKind.QUESTION and record.state is RecordState.ANSWERED:
        facts.append(
            QuestionsAnswered(
                approval_id=pending.approval_id,
                call_id=pending.call.call_id,
                answers_json=record.answer_json,
                skipped=record.skipped,
            )
        )
    facts.append(
        ApprovalResolved(
            approval_id=pending.approval_id,
            call_id=pending.call.call_id,
            resolution=_RESOLUTIONS[record.state],
            decided_by=record.decided_by,
            edited_arguments_json=record.edited_arguments_json,
            comment=record.comment,
            waited=waited,
        )
    )
    return facts


def _questions(pending: Pending) -> bytes:
    if pending.questions_json:
        return canonical_json(question_protos({"questions": json.loads(pending.questions_json)}))
    return canonical_json(question_protos(json.loads(pending.call.arguments_json)))


def _given(record: ApprovalRecord) -> Mapping[str, Any] | None:
    """Return the answers by question id: none when they were skipped, None when nobody answered."""
    if record.state is not RecordState.ANSWERED:
        return None
    answers = json.loads(record.answer_json or b"{}") if not record.skipped else {}
    return answers if isinstance(answers, dict) else {}


def _text(parts: object) -> str:
    """Return the text of parts in JSON form."""
    found = parts if isinstance(parts, list | tuple) else ()
    return "\n".join(str(part.get("text", "")) for part in found if isinstance(part, dict)).strip()


def _answer(pending: Pending, record: ApprovalRecord) -> Consent:
    if record.skipped:
        return Answered(text="The user skipped the questions: use your best judgement and say what you assumed.")
    answer = json.loads(record.answer_json or b"{}")
    if pending.pause_kind is PauseKind.CLIENT_TOOL:
        return Answered(text=_text(answer.get("parts", ())), failed=bool(answer.get("failed")))
    if pending.pause_kind is PauseKind.CONTINUE:
        said = _text(answer if isinstance(answer, list) else answer.get("parts", ()))
        if not said:
            return Answered(text="The user ended the run here: close with one short sentence, without any tool.")
        return Answered(text=f"The user goes on: {said}")
    return Answered(text=f"{ANSWERED}{record.answer_json.decode()}")
