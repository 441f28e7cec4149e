"""What a server returned, as a tool's result: text for the model, files for the user, pictures for the next round."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from services.chassis.errors import ServiceError
from services.chassis.identity import Principal
from services.orchestrator.artifacts import PICTURES
from services.orchestrator.domain.messages import Artifact, MediaPart
from services.orchestrator.mcp.naming import visible
from services.orchestrator.mcp.ports import Files
from services.orchestrator.tools.ports import ToolResult

# Of one result: text is cut again to what the model's window bears.
MOST_CHARACTERS = 1_000_000
MOST_FILES = 16
MOST_FILE_BYTES = 16 * 1024 * 1024
# Pictures beyond these are files only: a round must not fill with them.
MOST_PICTURES = 4


class Results:
    """Turns results into what the gate takes; bytes go to `files`."""

    def __init__(self, files: Files) -> None:
        self._files = files

    async def make(self, result: CallToolResult, server: str, principal: Principal, run_id: str) -> ToolResult:
        """Return the result. What cannot be kept is said in its text."""
        reading = _Reading(server=server, principal=principal, run_id=run_id)
        for block in result.content:
            await self._read(block, reading)
        if not reading.has_text and result.structured_content is not None:
            reading.say(json.dumps(result.structured_content, ensure_ascii=False))
        if reading.files:
            kept = ", ".join(f"{each.name} ({each.media_type}, {each.size} bytes)" for each in reading.files)
            reading.say(f"files kept for the user: {kept}")
        text = "\n".join(reading.texts) or ("(no text)" if not result.is_error else f"server '{server}' says it failed")
        return ToolResult(
            text=text,
            artifacts=tuple(reading.files),
            images=tuple(reading.pictures),
            failed=bool(result.is_error),
        )

    async def _read(self, block: ContentBlock, reading: _Reading) -> None:
        match block:
            case TextContent(text=text):
                reading.has_text = True
                reading.say(text)
            case ImageContent() | AudioContent():
                await self._keep(block.data, block.mime_type, "", reading)
            case EmbeddedResource(resource=TextResourceContents() as resource):
                reading.has_text = True
                reading.say(f"[{visible(resource.uri, 500)}]\n{resource.text}")
            case EmbeddedResource(resource=BlobResourceContents() as resource):
                name = resource.uri.split("?")[0].rsplit("/", 1)[-1]
                await self._keep(resource.blob, resource.mime_type or "", name, reading)
            case ResourceLink():
                reading.say(f"[link] {visible(block.title or block.name, 200)}: {visible(block.uri, 500)}")

    async def _keep(self, data: str, media_type: str, name: str, reading: _Reading) -> None:
        if len(reading.files) >= MOST_FILES:
            reading.say(f"(a further file was left out: {MOST_FILES} are the most of one result)")
            return
        if len(data) > MOST_FILE_BYTES * 4 // 3 + 4:
            reading.say(f"(a file of more than {MOST_FILE_BYTES} bytes was left out)")
            return
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            reading.say("(a file was left out: it is not valid base64)")
            return
        suffix = mimetypes.guess_extension(media_type.partition(";")[0].strip().lower()) or ".bin"
        try:
            kept = await self._files.keep(
                reading.principal,
                name or f"{reading.server}-{len(reading.files) + 1}{suffix}",
                _once(content),
                reading.run_id,
            )
        except ServiceError as error:
            reading.say(f"(a file was left out: {error.message})")
            return
        reading.files.append(kept)
        # The bytes say what it is, not the server.
        if kept.media_type in PICTURES and len(reading.pictures) < MOST_PICTURES:
            picture = MediaPart(media_type=kept.media_type, is_image=True, name=kept.name, artifact_id=kept.artifact_id)
            reading.pictures.append(picture)


@dataclass(slots=True, kw_only=True)
class _Reading:
    """One result on its way."""

    server: str
    principal: Principal
    run_id: str
    texts: list[str] = field(default_factory=list)
    files: list[Artifact] = field(default_factory=list)
    pictures: list[MediaPart] = field(default_factory=list)
    has_text: bool = False
    characters: int = 0

    def say(self, text: str) -> None:
        room = MOST_CHARACTERS - self.characters
        if len(text) > room:
            text = f"{text[: max(room, 0)]}\n[… the rest was left out …]" if room > 0 else ""
        if text:
            self.texts.append(text)
            self.characters += len(text)


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
