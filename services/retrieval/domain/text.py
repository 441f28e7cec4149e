"""What parsing leaves of a file: blocks of clean text that know their heading and page."""

from __future__ import annotations

from collections.abc import Iterator
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
