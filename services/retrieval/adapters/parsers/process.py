"""Parsing in processes with limits of time and memory: a hostile file ends its parser, never the service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

from services.retrieval.adapters.child_process import ChildDied, ChildProcess
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.sites import PageLinks
from services.retrieval.domain.text import Block, BlockKind, Parsed

WORKER = "services.retrieval.adapters.parsers.worker"
# Parsers' libraries leak a little; a fresh process now and then costs 0.2 s.
RETIRE_AFTER = 200


class ProcessParser:
    """Implements the port Parser with `workers` processes, each of at most `memory_bytes`, `seconds` for a file."""

    def __init__(self, *, workers: int, seconds: float, memory_bytes: int, max_characters: int) -> None:
        self._seconds = seconds
        self._max_characters = max_characters
        self._children = [ChildProcess(WORKER, [str(memory_bytes)], retire_after=RETIRE_AFTER) for _ in range(workers)]
        self._idle: asyncio.Queue[ChildProcess] = asyncio.Queue()
        for child in self._children:
            self._idle.put_nowait(child)

    async def parse(self, path: Path, name: str) -> Parsed:
        """Return the text of the file; its blocks are read from disk as they are taken."""
        out = path.with_name(f"{path.name}.blocks")
        job = {
            "path": str(path),
            "name": name,
            "out": str(out),
            "max_characters": self._max_characters,
        }
        child = await self._idle.get()
        try:
            reply = json.loads(await child.ask(json.dumps(job).encode(), self._seconds))
            if reply:
                raise UnreadableFile(reply["reason"], reply["message"])
            return await asyncio.to_thread(_open, out)
        except TimeoutError:
            raise UnreadableFile("TOO_SLOW", f"reading the file took longer than {self._seconds:g} seconds") from None
        except ChildDied:
            raise UnreadableFile("TOO_LARGE", "reading the file needed more memory than one file may take") from None
        finally:
            self._idle.put_nowait(child)
            # An open file stays readable after it is unlinked, and nothing is left behind when we are killed later.
            await asyncio.to_thread(out.unlink, missing_ok=True)

    async def render(self, path: Path, most: int) -> list[bytes]:
        """Return the first `most` pages of a PDF as PNG; none for any other file, or one that cannot be rendered."""
        out = path.with_name(f"{path.name}.pages")
        job = {"path": str(path), "out": str(out), "pages": most}
        child = await self._idle.get()
        try:
            reply = json.loads(await child.ask(json.dumps(job).encode(), self._seconds))
            return await asyncio.to_thread(_cut, out, reply.get("sizes", []))
        except (TimeoutError, ChildDied):
            return []
        finally:
            self._idle.put_nowait(child)
            await asyncio.to_thread(out.unlink, missing_ok=True)

    async def links(self, path: Path, url: str) -> PageLinks:
        """Return where the page in this file leads, or raise UnreadableFile."""
        child = await self._idle.get()
        try:
            reply = json.loads(await child.ask(json.dumps({"path": str(path), "links": url}).encode(), self._seconds))
        except (TimeoutError, ChildDied):
            raise UnreadableFile("TOO_SLOW", "reading the links of the page took too much time or memory") from None
        finally:
            self._idle.put_nowait(child)
        if "reason" in reply:
            raise UnreadableFile(reply["reason"], reply["message"])
        return PageLinks(
            found=tuple(reply["found"]), keep=reply["keep"], follow=reply["follow"], sitemap=reply["sitemap"]
        )

    async def close(self) -> None:
        """End the processes."""
        for child in self._children:
            await child.close()


def _cut(out: Path, sizes: list[int]) -> list[bytes]:
    if not sizes:
        return []
    with out.open("rb") as file:
        return [file.read(size) for size in sizes]


def _open(out: Path) -> Parsed:
    file = out.open(encoding="utf-8")
    media_type, title, remark = json.loads(file.readline())

    def blocks() -> Iterator[Block]:
        with file:
            for line in file:
                kind, level, page, text = json.loads(line)
                yield Block(text=text, kind=BlockKind(kind), level=level, page=page)

    return Parsed(media_type=media_type, title=title, blocks=blocks(), remark=remark)
