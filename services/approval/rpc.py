"""The gRPC surface: parse, call one use case, render."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from proctor.approval.v1 import approval_service_pb2 as pb
from proctor.approval.v1 import approval_service_pb2_grpc as pb_grpc
from services.approval import codec, paging
from services.approval.audit import Audit
from services.approval.decisions import Decisions, Seen
from services.approval.entitlement import AUDIT
from services.approval.feed import Watched, Watches
from services.approval.gate import GateKeeper
from services.approval.links import Links
from services.approval.ports import AuditHead
from services.approval.records import Query, Records
from services.approval.requests import Requests
from services.approval.rules import AllowRules
from services.chassis.identity import Principal, current_principal

# Below the server's message limit of 8 MiB, with room for one more record.
RESPONSE_BYTES = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCases:
    """What the servicer calls."""

    requests: Requests
    decisions: Decisions
    records: Records
    watches: Watches
    rules: AllowRules
    gate: GateKeeper
    links: Links
    audit: Audit


class ApprovalServicer(pb_grpc.ApprovalServiceServicer):
    """`proctor.approval.v1.ApprovalService`."""

    def __init__(self, use: UseCases) -> None:
        self._use = use

    async def RequestApproval(self, request: pb.RequestApprovalRequest, context: Any) -> pb.RequestApprovalResponse:
        approval = await self._use.requests.request(current_principal(), codec.asked(request))
        return pb.RequestApprovalResponse(approval=codec.approval_pb(approval))

    async def Decide(self, request: pb.DecideRequest, context: Any) -> pb.DecideResponse:
        decided = await self._use.decisions.decide(
            current_principal(),
            codec.text(request.approval_id),
            codec.decision(request),
            comment=codec.text(request.comment),
            seen=Seen(arguments_digest=request.arguments_digest, run_id=request.run_id),
        )
        return pb.DecideResponse(approval=codec.approval_pb(decided.approval), decided_now=decided.now)

    async def BatchGetApprovals(
        self, request: pb.BatchGetApprovalsRequest, context: Any
    ) -> pb.BatchGetApprovalsResponse:
        ids = [codec.text(approval_id) for approval_id in request.approval_ids]
        found = [codec.approval_pb(a) for a in await self._use.records.many(current_principal(), ids)]
        shown = fitting(found)
        left_out = [approval.approval_id for approval in found[len(shown) :]]
        return pb.BatchGetApprovalsResponse(approvals=shown, left_out=left_out)

    async def ListApprovals(self, request: pb.ListApprovalsRequest, context: Any) -> pb.ListApprovalsResponse:
        query = Query(
            states=frozenset(codec.STATES[state] for state in request.states if state in codec.STATES),
            run_id=codec.text(request.run_id),
            tool=codec.text(request.tool),
            kind=codec.KINDS.get(request.kind),
        )
        scope = paging.approvals_scope(query)
        size = request.page_size or 50
        found = await self._use.records.page(
            current_principal(), query, paging.place(scope, request.page_token), size + 1
        )
        shown = fitting([codec.approval_pb(approval) for approval in found[:size]])
        last = found[len(shown) - 1] if shown and len(shown) < len(found) else None
        token = paging.token(scope, last.requested_at, last.approval_id) if last else ""
        return pb.ListApprovalsResponse(approvals=shown, next_page_token=token)

    async def WatchApprovals(
        self, request: pb.WatchApprovalsRequest, context: Any
    ) -> AsyncIterator[pb.WatchApprovalsResponse]:
        watched = Watched(run_id=request.run_id, changes_only=request.changes_only)
        async with aclosing(self._use.watches.watch(current_principal(), watched)) as approvals:
            async for approval in approvals:
                yield pb.WatchApprovalsResponse(approval=codec.approval_pb(approval) if approval else None)

    async def CancelApproval(self, request: pb.CancelApprovalRequest, context: Any) -> pb.CancelApprovalResponse:
        approval = await self._use.requests.cancel(current_principal(), codec.text(request.approval_id))
        return pb.CancelApprovalResponse(approval=codec.approval_pb(approval))

    async def CreateAllowRule(self, request: pb.CreateAllowRuleRequest, context: Any) -> pb.CreateAllowRuleResponse:
        rule = await self._use.rules.create(
            current_principal(),
            codec.text(request.tool),
            conversation_id=codec.text(request.conversation_id),
            arguments_digest=request.arguments_digest,
            when=codec.text(request.when),
            lifetime=codec.lifetime(request),
        )
        return pb.CreateAllowRuleResponse(rule=codec.rule_pb(rule))

    async def ListAllowRules(self, request: pb.ListAllowRulesRequest, context: Any) -> pb.ListAllowRulesResponse:
        size = request.page_size or 100
        place = paging.place(paging.RULES, request.page_token)
        found = await self._use.rules.page(current_principal(), place, size + 1)
        shown = found[:size]
        token = paging.token(paging.RULES, shown[-1].created_at, shown[-1].rule_id) if len(found) > size else ""
        return pb.ListAllowRulesResponse(rules=map(codec.rule_pb, shown), next_page_token=token)

    async def DeleteAllowRule(self, request: pb.DeleteAllowRuleRequest, context: Any) -> pb.DeleteAllowRuleResponse:
        await self._use.rules.delete(current_principal(), codec.text(request.rule_id))
        return pb.DeleteAllowRuleResponse()

    async def EvaluateGate(self, request: pb.EvaluateGateRequest, context: Any) -> pb.EvaluateGateResponse:
        ruling = self._use.gate.evaluate(
            current_principal(),
            request.tool,
            codec.DEFAULTS[request.tool_default],
            request.arguments_json,
            [codec.binding(binding) for binding in request.bindings],
            unattended=request.unattended,
        )
        return codec.ruling_pb(ruling)

    async def CheckPolicy(self, request: pb.CheckPolicyRequest, context: Any) -> pb.CheckPolicyResponse:
        self._use.gate.check([codec.binding(binding) for binding in request.bindings])
        return pb.CheckPolicyResponse()

    async def GetLink(self, request: pb.GetLinkRequest, context: Any) -> pb.GetLinkResponse:
        approval, link = await self._use.links.look(request.token)
        return pb.GetLinkResponse(approval=codec.approval_pb(approval), decider=link.decider)

    async def DecideByLink(self, request: pb.DecideByLinkRequest, context: Any) -> pb.DecideByLinkResponse:
        decided = await self._use.links.decide(
            request.token,
            codec.decision(request),
            comment=codec.text(request.comment),
            arguments_digest=request.arguments_digest,
        )
        return pb.DecideByLinkResponse(approval=codec.approval_pb(decided.approval))

    async def ListAuditEntries(self, request: pb.ListAuditEntriesRequest, context: Any) -> pb.ListAuditEntriesResponse:
        tenant = _auditor().tenant
        size = request.page_size or 100
        subject = codec.text(request.subject)
        after = paging.audit_place(subject, request.page_token)
        found = await self._use.audit.read(tenant, after, size + 1, subject)
        shown = found[:size]
        token = paging.audit_token(subject, shown[-1].sequence) if len(found) > size else ""
        return pb.ListAuditEntriesResponse(entries=map(codec.audit_entry_pb, shown), next_page_token=token)

    async def VerifyAudit(self, request: pb.VerifyAuditRequest, context: Any) -> pb.VerifyAuditResponse:
        tenant = _auditor().tenant
        known = AuditHead(sequence=request.known_sequence, hash=request.known_hash) if request.known_sequence else None
        finding = await self._use.audit.verify(tenant, known)
        return pb.VerifyAuditResponse(
            intact=finding.intact,
            entries=finding.entries,
            head_hash=finding.head.hash,
            broken_at=finding.broken_at,
            problem=finding.problem,
        )

    async def ExportAudit(self, request: pb.ExportAuditRequest, context: Any) -> AsyncIterator[pb.ExportAuditResponse]:
        async with aclosing(self._use.audit.export(_auditor().tenant, request.after_sequence)) as chunks:
            async for lines in chunks:
                yield pb.ExportAuditResponse(json_lines=lines)


def _auditor() -> Principal:
    principal = current_principal()
    principal.require(AUDIT)
    return principal


def fitting(messages: list[pb.Approval]) -> list[pb.Approval]:
    """Return as many of the first `messages` as one response holds, at least one."""
    total = 0
    for count, message in enumerate(messages):
        total += message.ByteSize()
        if total > RESPONSE_BYTES and count:
            return messages[:count]
    return messages
