"""Program text: cut where definitions begin, each under the name it defines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from services.retrieval.adapters.parsers.text import MAX_PARAGRAPH, lines
from services.retrieval.domain.text import Block, BlockKind, Parsed

# A line at the margin that defines something, in the languages people keep in handbooks and repositories.
_DEFINITION = re.compile(
    r"^(?:export\s+|public\s+|private\s+|protected\s+|static\s+|abstract\s+|final\s+|async\s+|pub(?:\([^)]*\))?\s+)*"
    r"(?:def|class|func|fn|function|interface|struct|enum|trait|impl|type|message|service|module|object|CREATE\s+TABLE)"
    r"\s+[`\"(*]*([A-Za-z_][\w.]*)",
    re.IGNORECASE,
)


def parse(path: Path, name: str) -> Parsed:
    """Return the definitions of a program's source."""
    return Parsed(media_type="text/x-source", title=name.rpartition("/")[2], blocks=_blocks(lines(path)))


def _blocks(source: Iterator[str]) -> Iterator[Block]:
    held: list[str] = []
    size = 0
    for line in source:
        definition = _DEFINITION.match(line)
        if definition or size > MAX_PARAGRAPH:
            yield from _flush(held)
            held, size = [], 0
        if definition:
            yield Block(text=definition[1], kind=BlockKind.HEADING, level=3)
        held.append(line)
        size += len(line)
    yield from _flush(held)


def _flush(held: list[str]) -> Iterator[Block]:
    text = "\n".join(held).strip("\n")
    if text.strip():
        yield Block(text=text, kind=BlockKind.CODE)
