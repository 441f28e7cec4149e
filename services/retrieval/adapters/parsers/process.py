"""Parsing in processes with limits of time and memory: a hostile file ends its parser, never the service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from services.retrieval.adapters.parsers.exchange import (
    Job,
    LinksJob,
    PagesJob,
    TextJob,
    unpack_links,
    unpack_sizes,
    unpack_text,
)
from services.retrieval.adapters.parsers.parsing_children import (
    Limits,
    ended_by_refusal,
    first_line,
    parsing_pool,
    told_of,
)
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.sites import PageLinks
from services.retrieval.domain.text import PlainText

Reply = TypeVar("Reply")
# Somebody waits for what these read, but a search goes first.
NICE = 5


class ProcessParser:
    """Implements the ports Parser, Renderer and LinkParser with at most `workers` processes.

    They are not those that cut documents: an attachment must not wait for a book.
    """

    def __init__(self, limits: Limits, *, workers: int) -> None:
        self._limits = limits
        self._pool = parsing_pool(limits, workers, nice=NICE)

    async def text(self, path: Path, name: str, most: int) -> PlainText:
        job = TextJob(path=str(path), name=name, max_characters=self._limits.max_characters, most=most)
        return await self._ask("reading the file", job, unpack_text)

    async def render(self, path: Path, most: int) -> list[bytes]:
        """Return the first `most` pages of a PDF as PNG; none for any other file, or one that cannot be rendered."""
        out = path.with_name(f"{path.name}.pages")
        try:
            job = PagesJob(path=str(path), out=str(out), most=most)
            sizes = await self._ask("rendering the file", job, unpack_sizes)
            return await asyncio.to_thread(_pictures, out, sizes)
        except UnreadableFile:
            return []
        finally:
            await asyncio.to_thread(out.unlink, missing_ok=True)

    async def links(self, path: Path, url: str) -> PageLinks:
        """Return where the page in this file leads, or raise UnreadableFile."""
        return await self._ask("reading the links of the page", LinksJob(path=str(path), url=url), unpack_links)

    async def close(self) -> None:
        """End the processes."""
        await self._pool.close()

    async def _ask(self, doing: str, job: Job, unpack: Callable[[bytes], Reply]) -> Reply:
        seconds = self._limits.seconds
        with told_of(doing, seconds):
            async with self._pool.one() as child, child.converse() as conversation:
                line = await first_line(conversation, job, seconds)
                with ended_by_refusal(conversation):
                    reply = unpack(line)
                conversation.complete = True
                return reply


def _pictures(out: Path, sizes: list[int]) -> list[bytes]:
    if not sizes:
        return []
    with out.open("rb") as file:
        return [file.read(size) for size in sizes]
