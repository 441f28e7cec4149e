"""Blocks on disk between parsing and cutting: a file is known to be good, and its parser's memory free, before any of
it is stored.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import orjson

from services.retrieval.adapters.parsers.exchange import pack
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.text import Block, BlockKind

# What is shorter stays in memory, as most files do.
IN_MEMORY = 2**20


@contextmanager
def spooled(blocks: Iterable[Block], folder: Path) -> Iterator[Iterator[Block]]:
    """Read the blocks to their end and give them again, from a file in `folder` that has no name there."""
    # Not where temporary files are otherwise: that is often memory.
    with tempfile.SpooledTemporaryFile(IN_MEMORY, dir=str(folder)) as file:
        for block in blocks:
            file.write(pack([block.kind, block.level, block.page, block.text]) + b"\n")
        file.seek(0)
        yield _again(file)


def bounded(blocks: Iterable[Block], max_characters: int) -> Iterator[Block]:
    """Yield the blocks; UnreadableFile when they hold no character, or more than `max_characters`."""
    characters = 0
    for block in blocks:
        characters += len(block.text)
        if characters > max_characters:
            raise UnreadableFile("TOO_LARGE", f"the file holds more than {max_characters:,} characters of text")
        yield block
    if not characters:
        raise UnreadableFile("EMPTY", "the file holds no text")


def _again(file: IO[bytes]) -> Iterator[Block]:
    for line in file:
        kind, level, page, text = orjson.loads(line)
        yield Block(text=text, kind=BlockKind(kind), level=level, page=page)
