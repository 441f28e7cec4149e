"""Files of a message become what a model can read: pictures stay parts, everything else becomes its text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Protocol

from services.chassis.identity import Principal
from services.orchestrator.artifacts import Artifacts
from services.orchestrator.domain.events import Notice
from services.orchestrator.domain.messages import MediaPart, Message, Part, TextPart
from services.orchestrator.models.media import MediaReader

# Pages of a PDF that a model with vision is shown, beside the text of all of them.
PAGES = 5


class PageReader(MediaReader, Protocol):
    """Reads files, and renders pages of PDFs."""

    async def pages(self, part: MediaPart, tenant: str, most: int) -> list[bytes]: ...


class Attachments:
    """Puts the text of files into messages, and pages of PDFs for models that see, before anything is counted."""

    def __init__(self, media: PageReader, artifacts: Artifacts) -> None:
        self._media = media
        self._artifacts = artifacts

    async def read(
        self, messages: Sequence[Message], principal: Principal, run_id: str, *, sees: bool
    ) -> tuple[list[Message], list[Notice]]:
        """Return the messages with each file in place of its text, and a notice for each that cannot be read."""
        notices: list[Notice] = []
        read = []
        for message in messages:
            parts: list[Part] = []
            for part in message.parts:
                if isinstance(part, MediaPart) and not part.is_image:
                    parts += await self._file(part, principal, run_id, notices, sees=sees)
                else:
                    parts.append(part)
            read.append(replace(message, parts=tuple(parts)))
        return read, notices

    async def _file(
        self, part: MediaPart, principal: Principal, run_id: str, notices: list[Notice], *, sees: bool
    ) -> list[Part]:
        name = part.name or part.media_type
        text = (await self._media.text(part, principal.tenant)).strip()
        pictures = await self._pages(part, principal, run_id) if sees else []
        if not text and not pictures:
            notices.append(Notice(code="file_not_read", text=f"The file {name} holds no text that can be read."))
        shown = f"\n\n[file {name}]\n{text or '(no readable text)'}\n[end of {name}]"
        return [TextPart(text=shown), *pictures]

    async def _pages(self, part: MediaPart, principal: Principal, run_id: str) -> list[MediaPart]:
        """Keep rendered pages as files of the run, so that its saved state refers to them and does not hold them."""
        pictures = []
        for number, page in enumerate(await self._media.pages(part, principal.tenant, PAGES), start=1):
            kept = await self._artifacts.keep(
                principal, f"{part.name or 'file'}.page-{number}.png", _once(page), run_id
            )
            pictures.append(
                MediaPart(media_type="image/png", is_image=True, name=kept.name, artifact_id=kept.artifact_id)
            )
        return pictures


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
