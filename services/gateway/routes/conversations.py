"""Conversations: what was said, kept beyond the runs that said it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from proctor.orchestrator.v1 import conversation_service_pb2 as pb
from services.gateway import openapi
from services.gateway.access import Asker
from services.gateway.backends import STREAM_TIMEOUT, UNARY_TIMEOUT
from services.gateway.bodies.base import Body
from services.gateway.dependencies import PartsDep
from services.gateway.replies import json_reply

router = APIRouter(prefix="/v1/conversations", tags=["conversations"])


class Rename(Body):
    """Another title."""

    title: str = Field(min_length=1, max_length=200)


class Feedback(Body):
    """What the user thought of an answer; `none` takes a judgement back."""

    rating: Literal["good", "bad", "none"]
    comment: str = Field(default="", max_length=4096)


@router.get("", responses=openapi.answers(pb.ListConversationsResponse), response_class=Response)
async def list_conversations(
    parts: PartsDep,
    caller: Asker,
    query: Annotated[str, Query(max_length=512, description="Keeps those that contain it.")] = "",
    page_size: Annotated[int, Query(ge=0, le=500)] = 0,
    page_token: Annotated[str, Query(max_length=512)] = "",
) -> Response:
    """List the caller's conversations, the one with the newest activity first."""
    request = pb.ListConversationsRequest(query=query, page_size=page_size, page_token=page_token)
    reply = await parts.backends.conversations.ListConversations(
        request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


@router.get("/{conversation_id}", responses=openapi.answers(pb.GetConversationResponse), response_class=Response)
async def get_conversation(conversation_id: str, parts: PartsDep, caller: Asker) -> Response:
    """Return a conversation with its messages in force, oldest first."""
    request = pb.GetConversationRequest(conversation_id=conversation_id)
    reply = await parts.backends.conversations.GetConversation(
        request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


@router.patch("/{conversation_id}", responses=openapi.answers(pb.RenameConversationResponse), response_class=Response)
async def rename_conversation(conversation_id: str, body: Rename, parts: PartsDep, caller: Asker) -> Response:
    """Give a conversation another title."""
    request = pb.RenameConversationRequest(conversation_id=conversation_id, title=body.title)
    reply = await parts.backends.conversations.RenameConversation(
        request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


@router.delete("/{conversation_id}", responses=openapi.answers(pb.DeleteConversationResponse), response_class=Response)
async def delete_conversation(conversation_id: str, parts: PartsDep, caller: Asker) -> Response:
    """Delete a conversation and its messages; refused while a run works or waits in it."""
    request = pb.DeleteConversationRequest(conversation_id=conversation_id)
    reply = await parts.backends.conversations.DeleteConversation(
        request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


@router.post(
    "/{conversation_id}/messages/{message_id}/feedback",
    responses=openapi.answers(pb.RateMessageResponse),
    response_class=Response,
)
async def rate_message(
    conversation_id: str, message_id: str, body: Feedback, parts: PartsDep, caller: Asker
) -> Response:
    """Keep a judgement of one answer, in place of an earlier one."""
    rating = {"good": pb.RATING_GOOD, "bad": pb.RATING_BAD, "none": pb.RATING_UNSPECIFIED}[body.rating]
    request = pb.RateMessageRequest(
        conversation_id=conversation_id, message_id=message_id, rating=rating, comment=body.comment
    )
    reply = await parts.backends.conversations.RateMessage(
        request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


@router.get("/{conversation_id}/export", response_class=Response)
async def export_conversation(conversation_id: str, parts: PartsDep, caller: Asker) -> Response:
    """Download everything of a conversation as JSON lines, superseded messages too."""
    request = pb.ExportConversationRequest(conversation_id=conversation_id)
    call = parts.backends.conversations.ExportConversation(
        request, metadata=parts.metadata(caller), timeout=STREAM_TIMEOUT
    )
    # The first line is read here, so that a conversation that does not exist is a problem, not a broken download.
    first = await anext(aiter(call))

    async def lines() -> AsyncIterator[bytes]:
        yield first.chunk
        async for message in call:
            yield message.chunk

    name = f'attachment; filename="conversation-{conversation_id}.jsonl"'
    return StreamingResponse(lines(), media_type="application/jsonl", headers={"content-disposition": name})
