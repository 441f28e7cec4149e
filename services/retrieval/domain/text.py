"""What parsing leaves of a file: blocks of clean text that know their heading and page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class BlockKind(StrEnum):
    """What a block is, as far as cutting cares."""

    HEADING = "heading"
    TEXT = "text"
    ROW = "row"
    CODE = "code"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One paragraph, heading, table row or piece of code. `level` is a heading's depth from 1; `page` 0 is none."""

    text: str
    kind: BlockKind = BlockKind.TEXT
    level: int = 0
    page: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A parsed file: its kind, its title (empty when it names none) and its blocks, read once and in order.

    `remark` is a sentence for people about a file that is not what its name says; empty for any other.
    """

    media_type: str
    title: str
    blocks: Iterator[Block]
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainText:
    """The text of a file, its blocks separated by blank lines; `truncated` when it has more than was asked for.

    `media_type` and `title` are those of Parsed.
    """

    media_type: str
    title: str
    text: str
    truncated: bool


def plain(parsed: Parsed, blocks: Iterable[Block], most: int) -> PlainText:
    """Return at most `most` characters of the blocks. They are read to their end: what is wrong there is found."""
    texts: list[str] = []
    size = 0
    for block in blocks:
        if size <= most:
            texts.append(block.text)
            size += len(block.text) + 2
    text = "\n\n".join(texts)
    return PlainText(media_type=parsed.media_type, title=parsed.title, text=text[:most], truncated=len(text) > most)
