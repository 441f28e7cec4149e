"""Conversations and their messages as the orchestrator keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

import grpc

from services.chassis.errors import ServiceError
from services.orchestrator.domain.messages import Message


class Rating(IntEnum):
    """What a user thought of an answer."""

    NONE = 0
    GOOD = 1
    BAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation as its row tells it. `active_run_id` is the run that works or waits in it, empty without one."""

    conversation_id: str
    tenant: str
    user: str
    title: str
    created_at: datetime
    updated_at: datetime
    active_run_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """A user's judgement of one answer."""

    rating: Rating
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A message with its place. `superseded_by` is the run that replaced it, empty for a message in force."""

    position: int
    run_id: str
    message: Message
    superseded_by: str = ""
    feedback: Feedback | None = None


class ConversationNotFound(ServiceError):
    """The conversation does not exist or is another's."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "CONVERSATION_NOT_FOUND"

    def __init__(self, conversation_id: str) -> None:
        super().__init__(
            f"conversation '{conversation_id}' does not exist; list conversations to find the right id",
            metadata={"conversation_id": conversation_id},
        )


class ConversationBusy(ServiceError):
    """A run works or waits in the conversation."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "CONVERSATION_BUSY"

    def __init__(self, conversation_id: str, run_id: str) -> None:
        super().__init__(
            f"run '{run_id}' is active in conversation '{conversation_id}'; wait for its end, resume it or cancel it",
            metadata={"conversation_id": conversation_id, "run_id": run_id},
        )


class MessageNotFound(ServiceError):
    """The message does not exist in this conversation."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "MESSAGE_NOT_FOUND"

    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"message '{message_id}' does not exist in this conversation, or is superseded",
            metadata={"message_id": message_id},
        )
