"""The approval service over gRPC."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import grpc
from google.protobuf import json_format

from proctor.agent.v1 import agent_pb2
from proctor.approval.v1 import approval_service_pb2 as pb
from proctor.approval.v1.approval_service_pb2_grpc import ApprovalServiceStub
from services.chassis.errors import FieldViolation
from services.chassis.identity import IdentitySigner, Principal
from services.orchestrator.adapters.remote import RemoteError, remote_failure
from services.orchestrator.codec_reflect import duration, to_pb
from services.orchestrator.domain.agent import ToolBinding
from services.orchestrator.ports import (
    ApprovalRecord,
    ApprovalRequest,
    Decision,
    GateDecision,
    GateVerdict,
    RecordState,
    RequestKind,
)
from services.orchestrator.tools.ports import Consent

_log = logging.getLogger(__name__)
RECONNECT_SECONDS = 1.0
BATCH = 500

_VERDICTS = {
    pb.GATE_ALLOW: GateVerdict.ALLOW,
    pb.GATE_ASK: GateVerdict.ASK,
    pb.GATE_UNSPECIFIED: GateVerdict.ASK,
    pb.GATE_ASK_ALWAYS: GateVerdict.ASK_ALWAYS,
    pb.GATE_DENY: GateVerdict.DENY,
    pb.GATE_QUORUM: GateVerdict.QUORUM,
}
_GATES = {
    GateVerdict.ASK: pb.GATE_ASK,
    GateVerdict.ASK_ALWAYS: pb.GATE_ASK_ALWAYS,
    GateVerdict.QUORUM: pb.GATE_QUORUM,
    GateVerdict.DENY: pb.GATE_DENY,
    GateVerdict.ALLOW: pb.GATE_ASK,
}
_DEFAULTS = {
    Consent.ALLOW: pb.TOOL_DEFAULT_ALLOW,
    Consent.ASK: pb.TOOL_DEFAULT_ASK,
    Consent.ASK_EVERY_CALL: pb.TOOL_DEFAULT_ASK_EVERY_CALL,
}
_KINDS = {
    RequestKind.TOOL: pb.APPROVAL_KIND_TOOL,
    RequestKind.QUESTION: pb.APPROVAL_KIND_QUESTION,
    RequestKind.CONTINUE: pb.APPROVAL_KIND_CONTINUE,
    RequestKind.CLIENT_TOOL: pb.APPROVAL_KIND_CLIENT_TOOL,
}


class GrpcApprovals:
    """Implements the Approvals port. Failures of the service come out as ServiceErrors with its own reason."""

    def __init__(self, channel: grpc.aio.Channel, signer: IdentitySigner, service_principal: Principal) -> None:
        self._stub = ApprovalServiceStub(channel)
        self._signer = signer
        self._service = service_principal

    async def evaluate(
        self,
        principal: Principal,
        *,
        tool: str,
        consent: Consent,
        arguments_json: bytes,
        bindings: tuple[ToolBinding, ...],
        conversation_id: str,
        unattended: bool,
    ) -> GateDecision:
        """Return what the policy says of one call."""
        request = pb.EvaluateGateRequest(
            tool=tool,
            tool_default=_DEFAULTS[consent],
            arguments_json=arguments_json,
            bindings=[to_pb(binding, agent_pb2.ToolBinding) for binding in bindings],
            conversation_id=conversation_id,
            unattended=unattended,
        )
        with remote_failure():
            response = await self._stub.EvaluateGate(request, metadata=self._signer.metadata(principal))
        return GateDecision(
            verdict=_VERDICTS[response.gate],
            policy=response.policy,
            quorum=response.quorum,
            group=response.group,
            four_eyes=response.four_eyes,
            timeout=response.timeout.ToTimedelta() if response.HasField("timeout") else None,
        )

    async def check_policies(self, principal: Principal, bindings: Sequence[ToolBinding]) -> tuple[FieldViolation, ...]:
        """Return what is wrong with policies, by field `bindings[i].…`; nothing when they can serve."""
        request = pb.CheckPolicyRequest(bindings=[to_pb(binding, agent_pb2.ToolBinding) for binding in bindings])
        try:
            with remote_failure():
                await self._stub.CheckPolicy(request, metadata=self._signer.metadata(principal))
        except RemoteError as error:
            if not error.violations:
                raise
            return error.violations
        return ()

    async def request(self, principal: Principal, request: ApprovalRequest) -> ApprovalRecord:
        """Ask; the answer is decided already when a rule satisfied it."""
        decision = request.decision
        message = pb.RequestApprovalRequest(
            approval_id=request.approval_id,
            kind=_KINDS[request.kind],
            run_id=request.run_id,
            round=request.round,
            call_id=request.call_id,
            conversation_id=request.conversation_id,
            tool=request.tool,
            arguments_json=request.arguments_json,
            parameters_json=request.parameters_json,
            reason=request.reason[:4096],
            gate=_GATES[decision.verdict],
            policy=decision.policy,
            quorum=decision.quorum,
            group=decision.group,
            four_eyes=decision.four_eyes,
            agent=request.agent,
            timeout=duration(decision.timeout) if decision.timeout else None,
            questions=_questions(request.questions_json),
        )
        with remote_failure():
            response = await self._stub.RequestApproval(message, metadata=self._signer.metadata(principal))
        return _record(response.approval)

    async def get(self, principal: Principal, approval_ids: Sequence[str]) -> dict[str, ApprovalRecord]:
        """Return the records that exist, by id."""
        found: dict[str, ApprovalRecord] = {}
        for start in range(0, len(approval_ids), BATCH):
            message = pb.BatchGetApprovalsRequest(approval_ids=approval_ids[start : start + BATCH])
            with remote_failure():
                response = await self._stub.BatchGetApprovals(message, metadata=self._signer.metadata(principal))
            found |= {approval.approval_id: _record(approval) for approval in response.approvals}
        return found

    async def decide(self, principal: Principal, approval_id: str, run_id: str, decision: Decision) -> ApprovalRecord:
        """Bring a decision as `principal`."""
        message = pb.DecideRequest(approval_id=approval_id, run_id=run_id, comment=decision.comment)
        match decision.kind:
            case "approve":
                message.approve.remember = pb.RuleScope.ValueType(decision.remember)
                message.approve.SetInParent()
            case "deny":
                message.deny.SetInParent()
            case "edit":
                message.edit.arguments_json = decision.payload_json
            case "answer":
                message.answer.answers_json = decision.payload_json
                message.answer.skipped = decision.skipped
            case "client_tool":
                message.client_tool.result_json = decision.payload_json
            case "continue":
                message.continue_with.input_json = decision.payload_json
            case other:
                raise ValueError(f"'{other}' is no kind of decision")
        with remote_failure():
            response = await self._stub.Decide(message, metadata=self._signer.metadata(principal))
        return _record(response.approval)

    async def cancel(self, principal: Principal, approval_id: str) -> None:
        """Withdraw a request; one that is decided stays as it is."""
        message = pb.CancelApprovalRequest(approval_id=approval_id)
        with remote_failure():
            await self._stub.CancelApproval(message, metadata=self._signer.metadata(principal))

    async def changes(self) -> AsyncIterator[str]:
        """Yield ids of runs with a request that is no longer pending; connects again after a break, until cancelled."""
        while True:
            call = self._stub.WatchApprovals(pb.WatchApprovalsRequest(), metadata=self._signer.metadata(self._service))
            try:
                async for response in call:
                    if response.HasField("approval") and response.approval.state != pb.APPROVAL_STATE_PENDING:
                        yield response.approval.run_id
            except grpc.aio.AioRpcError as error:
                _log.debug("the watch of approvals broke: %s", error.details())
            finally:
                call.cancel()
            await asyncio.sleep(RECONNECT_SECONDS)


def _questions(questions_json: bytes) -> list[pb.Question]:
    if not questions_json:
        return []
    return [json_format.ParseDict(question, pb.Question()) for question in json.loads(questions_json)]


def _record(approval: pb.Approval) -> ApprovalRecord:
    state = pb.ApprovalState.Name(approval.state).removeprefix("APPROVAL_STATE_").lower()
    return ApprovalRecord(
        approval_id=approval.approval_id,
        run_id=approval.run_id,
        call_id=approval.call_id,
        state=RecordState(state),
        arguments_digest=approval.arguments_digest,
        deadline=_time(approval, "deadline"),
        policy=approval.policy,
        decided_by=approval.decided_by,
        decided_at=_time(approval, "decided_at"),
        comment=approval.comment,
        edited_arguments_json=approval.edited_arguments_json,
        answer_json=approval.answer_json,
        skipped=approval.skipped,
        requested_at=_time(approval, "requested_at"),
        question_ids=tuple(question.question_id for question in approval.questions),
    )


def _time(approval: pb.Approval, name: str) -> datetime | None:
    if not approval.HasField(name):  # type: ignore[arg-type]
        return None
    value: datetime = getattr(approval, name).ToDatetime(tzinfo=UTC)
    return value
