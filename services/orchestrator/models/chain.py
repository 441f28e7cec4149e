"""Whether a stored response may be gone on from: by the same model and account in the same conversation only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from services.orchestrator.domain.messages import Message, Role
from services.orchestrator.models.model_settings import ModelSettings
from services.orchestrator.models.ports import ModelRequest

_SEPARATOR = "."
_DIGEST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A stored response and the messages that have come since."""

    response_id: str
    new: tuple[Message, ...]


def chain_key(settings: ModelSettings, request: ModelRequest) -> str:
    """Return a digest of all that must be the same: provider, model, base URL, key, tenant, user and conversation."""
    parts = (
        settings.provider,
        settings.upstream_name,
        settings.base_url,
        hashlib.sha256(settings.api_key.encode()).hexdigest(),
        request.tenant,
        request.user,
        request.conversation_id,
    )
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:_DIGEST]


def sealed(response_id: str, settings: ModelSettings, request: ModelRequest) -> str:
    """Return the id to keep with the message: the provider's, behind the key of its chain."""
    return f"{chain_key(settings, request)}{_SEPARATOR}{response_id}" if response_id else ""


def link(messages: Sequence[Message], settings: ModelSettings, request: ModelRequest) -> Link | None:
    """Return the last response of this chain and what is new since, None when there is none to go on from.

    A conversation without id has no chain. Results of tools are sent in full: the provider knows their calls under its
    own ids, which are not kept.
    """
    if not request.conversation_id:
        return None
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if message.role is Role.TOOL or message.tool_calls:
            return None
        if message.role is Role.ASSISTANT:
            key, _, response_id = message.response_id.partition(_SEPARATOR)
            if response_id and key == chain_key(settings, request):
                return Link(response_id=response_id, new=tuple(messages[position + 1 :]))
            return None
    return None
