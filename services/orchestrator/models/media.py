"""Pictures and files in messages: brought into the form a model takes, or told in words where it takes none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from services.orchestrator.domain.messages import MediaPart, Message, Part, Role, TextPart
from services.orchestrator.models.layers import Events, TimedModel
from services.orchestrator.models.model_settings import VISION
from services.orchestrator.models.ports import ModelInfo, ModelNotice, ModelRequest
from services.orchestrator.models.timing import CallClock

NOTICE = "media_not_seen"


class MediaReader(Protocol):
    """Reads what a part of a message refers to."""

    async def load(self, part: MediaPart, tenant: str) -> MediaPart:
        """Return the part with its bytes inline, or with a URL the provider fetches; as it is when it has either."""
        ...

    async def text(self, part: MediaPart, tenant: str) -> str:
        """Return the text in a file or picture, empty when none can be read."""
        ...


class InlineMedia:
    """Reads only what the message carries itself, and text only from text."""

    async def load(self, part: MediaPart, tenant: str) -> MediaPart:
        """Return the part."""
        return part

    async def text(self, part: MediaPart, tenant: str) -> str:
        """Return the bytes as text when they are text."""
        readable = part.media_type.startswith("text/") or part.media_type == "application/json"
        return part.inline.decode("utf-8", errors="replace") if readable else ""


class MediaAware:
    """Gives a model the pictures it can see, and the text of everything else.

    A model without vision gets the extracted text of a picture, or is told that there is one, and a notice says so.
    """

    def __init__(self, inner: TimedModel, info: ModelInfo, media: MediaReader) -> None:
        self._inner = inner
        self._info = info
        self._media = media

    def stream(self, request: ModelRequest, call: CallClock) -> Events:
        """Return the inner stream as it is when all parts are text."""
        if all(isinstance(part, TextPart) for message in request.messages for part in message.parts):
            return self._inner.stream(request, call)
        return self._with_media(request, call)

    async def _with_media(self, request: ModelRequest, call: CallClock) -> Events:
        sees = VISION in self._info.capabilities
        unseen = 0
        messages = []
        for message in request.messages:
            parts: list[Part] = []
            for part in message.parts:
                taken = await self._taken(part, request.tenant, sees=sees)
                parts.append(taken)
                unseen += isinstance(part, MediaPart) and part.is_image and isinstance(taken, TextPart)
            messages.append(replace(message, parts=tuple(parts)))
        if unseen:
            count = "a picture" if unseen == 1 else f"{unseen} pictures"
            yield ModelNotice(
                code=NOTICE, text=f"The model {self._info.model_id} cannot see {count}; it was given text instead."
            )
        shown = replace(request, messages=lifted(messages))
        async with aclosing(self._inner.stream(shown, call)) as events:
            async for event in events:
                yield event

    async def _taken(self, part: Part, tenant: str, *, sees: bool) -> Part:
        if isinstance(part, TextPart):
            return part
        if part.is_image and sees:
            return await self._media.load(part, tenant)
        name = part.name or part.media_type
        text = await self._media.text(part, tenant)
        if text:
            return TextPart(text=f"\n[text of {name}]\n{text}\n[end of {name}]\n")
        return TextPart(text=f"\n[{name}: a {'picture' if part.is_image else 'file'} that cannot be read here]\n")


def lifted(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return messages in which pictures of tool results stand in a user's message after the results.

    Tool messages hold text only in Chat Completions.
    """
    out: list[Message] = []
    pictures: list[Part] = []
    for message in messages:
        if pictures and message.role is not Role.TOOL:
            out.append(Message(role=Role.USER, parts=tuple(pictures)))
            pictures = []
        if message.role is Role.TOOL:
            found = [part for part in message.parts if isinstance(part, MediaPart)]
            if found:
                pictures += [TextPart(text=f"Pictures that {message.tool_name or 'the tool'} returned:"), *found]
                text = message.text or "(pictures follow)"
                out.append(replace(message, parts=(TextPart(text=text),)))
                continue
        out.append(message)
    if pictures:
        out.append(Message(role=Role.USER, parts=tuple(pictures)))
    return tuple(out)
