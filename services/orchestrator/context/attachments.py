"""Files of a message become what a model can read: pictures stay parts, everything else becomes its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from services.orchestrator.domain.events import Notice
from services.orchestrator.domain.messages import MediaPart, Message, Part, TextPart
from services.orchestrator.models.media import MediaReader


class Attachments:
    """Puts the text of files into messages, before anything is counted."""

    def __init__(self, media: MediaReader) -> None:
        self._media = media

    async def read(self, messages: Sequence[Message], tenant: str) -> tuple[list[Message], list[Notice]]:
        """Return the messages with each file in place of its text, and a notice for each that cannot be read."""
        notices: list[Notice] = []
        return [await self._one(message, tenant, notices) for message in messages], notices

    async def _one(self, message: Message, tenant: str, notices: list[Notice]) -> Message:
        if not any(isinstance(part, MediaPart) and not part.is_image for part in message.parts):
            return message
        parts: list[Part] = []
        for part in message.parts:
            if not isinstance(part, MediaPart) or part.is_image:
                parts.append(part)
                continue
            name = part.name or part.media_type
            text = await self._media.text(part, tenant)
            if not text.strip():
                notices.append(Notice(code="file_not_read", text=f"The file {name} holds no text that can be read."))
            shown = f"\n\n[file {name}]\n{text.strip() or '(no readable text)'}\n[end of {name}]"
            parts.append(TextPart(text=shown))
        return replace(message, parts=tuple(parts))
