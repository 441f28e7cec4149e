"""Text of a file that is not kept: an attachment, read by the same parsers as a document."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc

from services.chassis.errors import ServiceError, TooLarge
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.ports import Parser

DEFAULT_CHARACTERS = 100_000
# A reply is one message of at most 8 MiB, text included.
MAX_PAGES_BYTES = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """The text of a file, its blocks separated by blank lines, what the parser found out, and pages as PNG."""

    text: str
    media_type: str
    title: str
    truncated: bool
    pages: tuple[bytes, ...] = ()


class Renderer(Protocol):
    """Turns pages of a file into pictures."""

    async def render(self, path: Path, most: int) -> list[bytes]: ...


class UnsupportedDocument(ServiceError):
    """The file's type is not supported, or it cannot be read."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "UNSUPPORTED_DOCUMENT"


class TextExtractor:
    """Reads files of at most `max_bytes` in a scratch folder that is gone afterwards."""

    def __init__(self, parser: Parser, renderer: Renderer, max_bytes: int) -> None:
        self._parser = parser
        self._renderer = renderer
        self._max_bytes = max_bytes

    async def extract(
        self, name: str, chunks: AsyncIterator[bytes], *, max_characters: int, max_pages: int
    ) -> Extracted:
        """Return the text of the file called `name` and its first pages as pictures.

        Raises TooLarge, or UnsupportedDocument saying why; a PDF without text is fine when its pages were asked for.
        """
        with tempfile.TemporaryDirectory(prefix="proctor-extract-") as folder:
            path = Path(folder) / "file"
            await self._store(name, chunks, path)
            pages = _within(await self._renderer.render(path, max_pages)) if max_pages else ()
            try:
                found = await self._parser.text(path, name, max_characters or DEFAULT_CHARACTERS)
            except UnreadableFile as error:
                if pages:
                    return Extracted(text="", media_type="application/pdf", title="", truncated=False, pages=pages)
                raise UnsupportedDocument(f"file '{name}' cannot be read: {error.message}") from error
            return Extracted(
                text=found.text,
                media_type=found.media_type,
                title=found.title,
                truncated=found.truncated,
                pages=pages,
            )

    async def _store(self, name: str, chunks: AsyncIterator[bytes], path: Path) -> None:
        size = 0
        file = await asyncio.to_thread(path.open, "wb")
        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > self._max_bytes:
                    raise TooLarge(f"file '{name}' is larger than {self._max_bytes} bytes; attach a smaller one")
                await asyncio.to_thread(file.write, chunk)
        finally:
            await asyncio.to_thread(file.close)


def _within(pages: list[bytes]) -> tuple[bytes, ...]:
    """Return the first pages that together fit one reply."""
    kept: list[bytes] = []
    for page in pages:
        if sum(map(len, kept)) + len(page) > MAX_PAGES_BYTES:
            break
        kept.append(page)
    return tuple(kept)
