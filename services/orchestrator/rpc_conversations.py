"""ConversationService and UsageService: parse, call the store for the principal, render."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message as ProtoMessage

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import conversation_service_pb2 as pb
from proctor.orchestrator.v1 import conversation_service_pb2_grpc, usage_service_pb2, usage_service_pb2_grpc
from services.chassis.clock import Clock
from services.chassis.identity import Principal, current_principal
from services.chassis.paging import decode_token, encode_token
from services.orchestrator.codec_reflect import timestamp, to_pb
from services.orchestrator.domain.conversation import Conversation, Feedback, Rating, StoredMessage
from services.orchestrator.domain.usage import Consumption, Quota, QuotaScope, UsageDay
from services.orchestrator.ports import ConversationKeeper, UsageKeeper

DEFAULT_PAGE = 50
DEFAULT_DAYS = timedelta(days=30)
ALL_USAGE = "usage:all"
WRITE_QUOTAS = "quotas:write"
Context = grpc.aio.ServicerContext[Any, Any]

_SCOPES = {
    usage_service_pb2.QUOTA_SCOPE_TENANT: QuotaScope.TENANT,
    usage_service_pb2.QUOTA_SCOPE_USER: QuotaScope.USER,
    usage_service_pb2.QUOTA_SCOPE_KEY: QuotaScope.KEY,
}
_SCOPE_NUMBERS = {scope: number for number, scope in _SCOPES.items()}


class ConversationServicer(conversation_service_pb2_grpc.ConversationServiceServicer):
    """The principal's own conversations."""

    def __init__(self, conversations: ConversationKeeper) -> None:
        self._conversations = conversations

    async def ListConversations(
        self, request: pb.ListConversationsRequest, context: Context
    ) -> pb.ListConversationsResponse:
        who = current_principal()
        limit = request.page_size or DEFAULT_PAGE
        scope = f"conversations:{request.query}"
        after = None
        if request.page_token:
            stamp, conversation_id = decode_token(scope, request.page_token)
            after = (datetime.fromisoformat(str(stamp)), str(conversation_id))
        rows = await self._conversations.list(who.tenant, who.user, query=request.query, limit=limit, after=after)
        full = len(rows) == limit
        token = encode_token(scope, rows[-1].updated_at.isoformat(), rows[-1].conversation_id) if full else ""
        return pb.ListConversationsResponse(conversations=[_conversation(row) for row in rows], next_page_token=token)

    async def GetConversation(self, request: pb.GetConversationRequest, context: Context) -> pb.GetConversationResponse:
        who = current_principal()
        conversation = await self._conversations.get(who.tenant, who.user, request.conversation_id)
        messages = await self._conversations.history(who.tenant, who.user, request.conversation_id)
        return pb.GetConversationResponse(
            conversation=_conversation(conversation), messages=[_message(message) for message in messages]
        )

    async def RenameConversation(
        self, request: pb.RenameConversationRequest, context: Context
    ) -> pb.RenameConversationResponse:
        who = current_principal()
        await self._conversations.rename(who.tenant, who.user, request.conversation_id, request.title)
        conversation = await self._conversations.get(who.tenant, who.user, request.conversation_id)
        return pb.RenameConversationResponse(conversation=_conversation(conversation))

    async def DeleteConversation(
        self, request: pb.DeleteConversationRequest, context: Context
    ) -> pb.DeleteConversationResponse:
        who = current_principal()
        await self._conversations.delete(who.tenant, who.user, request.conversation_id)
        return pb.DeleteConversationResponse()

    async def RateMessage(self, request: pb.RateMessageRequest, context: Context) -> pb.RateMessageResponse:
        who = current_principal()
        feedback = Feedback(rating=Rating(request.rating), comment=request.comment)
        await self._conversations.rate(who.tenant, who.user, request.conversation_id, request.message_id, feedback)
        return pb.RateMessageResponse()

    async def ExportConversation(
        self, request: pb.ExportConversationRequest, context: Context
    ) -> AsyncIterator[pb.ExportConversationResponse]:
        who = current_principal()
        conversation = await self._conversations.get(who.tenant, who.user, request.conversation_id)
        messages = await self._conversations.everything(who.tenant, who.user, request.conversation_id)
        yield _line(_conversation(conversation))
        for message in messages:
            yield _line(_message(message))


class UsageServicer(usage_service_pb2_grpc.UsageServiceServicer):
    """Usage and quotas of the principal's tenant."""

    def __init__(self, usage: UsageKeeper, clock: Clock) -> None:
        self._usage = usage
        self._clock = clock

    async def GetUsage(
        self, request: usage_service_pb2.GetUsageRequest, context: Context
    ) -> usage_service_pb2.GetUsageResponse:
        who = current_principal()
        if request.whole_tenant:
            who.require(ALL_USAGE)
        given = request.since.ToDatetime(tzinfo=UTC) if request.HasField("since") else None
        since = given or self._clock.now() - DEFAULT_DAYS
        days = await self._usage.by_day(who.tenant, since=since, user="" if request.whole_tenant else who.user)
        return usage_service_pb2.GetUsageResponse(days=[_day(day) for day in days])

    async def ListQuotas(
        self, request: usage_service_pb2.ListQuotasRequest, context: Context
    ) -> usage_service_pb2.ListQuotasResponse:
        who = current_principal()
        rows = await self._usage.quotas(who.tenant)
        start = int(decode_token("quotas", request.page_token)[0]) if request.page_token else 0
        end = start + (request.page_size or 2 * DEFAULT_PAGE)
        token = encode_token("quotas", end) if end < len(rows) else ""
        quotas = [_quota_to_pb(row, await self._used(who, row)) for row in rows[start:end]]
        return usage_service_pb2.ListQuotasResponse(quotas=quotas, next_page_token=token)

    async def _used(self, who: Principal, quota: Quota) -> Consumption | None:
        """Return what was used of a quota, or None when the principal may not know."""
        own = {QuotaScope.TENANT: "", QuotaScope.USER: who.user, QuotaScope.KEY: who.key_id}[quota.scope]
        subject = quota.subject or own
        if quota.scope is not QuotaScope.TENANT and not subject:
            return None
        if (quota.scope is QuotaScope.TENANT or subject != own) and not who.scopes & {ALL_USAGE, "*"}:
            return None
        return await self._usage.consumed(who.tenant, quota.scope, subject)

    async def SetQuota(
        self, request: usage_service_pb2.SetQuotaRequest, context: Context
    ) -> usage_service_pb2.SetQuotaResponse:
        who = current_principal()
        who.require(WRITE_QUOTAS)
        quota = _quota(request.quota)
        await self._usage.set_quota(who.tenant, quota)
        return usage_service_pb2.SetQuotaResponse(quota=_quota_to_pb(quota))

    async def DeleteQuota(
        self, request: usage_service_pb2.DeleteQuotaRequest, context: Context
    ) -> usage_service_pb2.DeleteQuotaResponse:
        who = current_principal()
        who.require(WRITE_QUOTAS)
        # A quota without caps is none.
        await self._usage.set_quota(who.tenant, Quota(scope=_SCOPES[request.scope], subject=request.subject))
        return usage_service_pb2.DeleteQuotaResponse()


def _line(message: ProtoMessage) -> pb.ExportConversationResponse:
    text = json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None, ensure_ascii=False)
    return pb.ExportConversationResponse(chunk=text.encode() + b"\n")


def _conversation(row: Conversation) -> pb.Conversation:
    return pb.Conversation(
        conversation_id=row.conversation_id,
        title=row.title,
        created_at=timestamp(row.created_at),
        updated_at=timestamp(row.updated_at),
        active_run_id=row.active_run_id,
    )


def _message(row: StoredMessage) -> pb.StoredMessage:
    return pb.StoredMessage(
        message=to_pb(row.message, agent_pb2.Message),
        run_id=row.run_id,
        superseded_by=row.superseded_by,
        rating=pb.Rating.ValueType(row.feedback.rating if row.feedback else 0),
        comment=row.feedback.comment if row.feedback else "",
        position=row.position,
    )


def _day(day: UsageDay) -> usage_service_pb2.UsageDay:
    return usage_service_pb2.UsageDay(
        day=timestamp(day.day),
        user=day.user,
        model=day.model,
        runs=day.runs,
        input_tokens=day.input_tokens,
        output_tokens=day.output_tokens,
        cost_micros=day.cost_micros,
    )


def _quota(message: usage_service_pb2.Quota) -> Quota:
    return Quota(
        scope=_SCOPES[message.scope],
        subject=message.subject,
        runs=message.runs if message.HasField("runs") else None,
        tokens=message.tokens if message.HasField("tokens") else None,
        cost_micros=message.cost_micros if message.HasField("cost_micros") else None,
    )


def _quota_to_pb(quota: Quota, used: Consumption | None = None) -> usage_service_pb2.Quota:
    use = usage_service_pb2.QuotaUse
    return usage_service_pb2.Quota(
        scope=_SCOPE_NUMBERS[quota.scope],
        subject=quota.subject,
        runs=quota.runs,
        tokens=quota.tokens,
        cost_micros=quota.cost_micros,
        used=use(runs=used.runs, tokens=used.tokens, cost_micros=used.cost_micros) if used else None,
    )
