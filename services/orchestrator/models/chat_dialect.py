"""Chat Completions as a dialect of the adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.orchestrator.models.chat_chunks import ChatChunks
from services.orchestrator.models.chat_wire import chat_body
from services.orchestrator.models.model_settings import ModelSettings
from services.orchestrator.models.ports import ModelRequest
from services.orchestrator.models.reply import ReplyBuilder


class ChatDialect:
    """`POST /chat/completions`."""

    path = "/chat/completions"

    def bodies(self, request: ModelRequest, settings: ModelSettings, names: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the one body: this interface stores nothing."""
        return [chat_body(request, settings, names)]

    def decoder(self, reply: ReplyBuilder) -> ChatChunks:
        """Return a reader of chunks."""
        return ChatChunks(reply)

    def response_id(self, reply: ReplyBuilder, request: ModelRequest, settings: ModelSettings) -> str:
        """Return nothing: a completion cannot be gone on from."""
        return ""
