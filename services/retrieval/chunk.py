"""Cutting: blocks of clean text become passages (parents, shown and cited) with spans (children, searched).

Passages are cut at headings first, then between blocks, then between sentences; children never cross a heading that
follows enough text. The text is handled as a stream: memory is one passage, whatever the size of the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from services.retrieval.domain.library import Span
from services.retrieval.domain.text import Block, BlockKind

_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])\s*|\n+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """Sizes in characters. A parent holds up to `parent_max`; a heading ends it once it holds `heading_min`
    (main headings) or `parent_min` (any). Children aim at `child_min` to `child_max`.
    """

    parent_max: int = 4000
    parent_min: int = 3500
    heading_min: int = 1800
    main_level: int = 2
    child_min: int = 400
    child_max: int = 600
    child_heading_min: int = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """One cut passage: its text, where it starts in the document's clean text, and its children."""

    text: str
    start: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A sentence group, row or heading that is never cut. `gap` separates it from the piece before."""

    text: str
    gap: str
    kind: BlockKind
    level: int
    heading: str
    page: int


def cut(blocks: Iterable[Block], sizes: Cutting) -> Iterator[Parent]:
    """Yield the passages of a document in order."""
    offset = 0
    held: list[_Piece] = []
    length = 0
    for piece in _pieces(blocks, sizes):
        if held and _ends_before(piece, length, sizes):
            carried = _trailing_headings(held)
            if len(carried) < len(held):
                parent = _parent(held[: len(held) - len(carried)], offset, sizes)
                yield parent
                offset += len(parent.text) + 2
                held, length = carried, _length(carried)
        held.append(piece)
        length += len(piece.text) + (len(piece.gap) if len(held) > 1 else 0)
    if held:
        yield _parent(held, offset, sizes)


def _ends_before(piece: _Piece, length: int, sizes: Cutting) -> bool:
    if length + len(piece.gap) + len(piece.text) > sizes.parent_max:
        return True
    if piece.kind is not BlockKind.HEADING:
        return False
    return length >= (sizes.heading_min if piece.level <= sizes.main_level else sizes.parent_min)


def _trailing_headings(pieces: list[_Piece]) -> list[_Piece]:
    """Return the headings at the end: they belong to what follows."""
    at = len(pieces)
    while at and pieces[at - 1].kind is BlockKind.HEADING:
        at -= 1
    return pieces[at:]


def _length(pieces: list[_Piece]) -> int:
    return sum(len(p.text) for p in pieces) + sum(len(p.gap) for p in pieces[1:])


def _parent(pieces: list[_Piece], offset: int, sizes: Cutting) -> Parent:
    text = pieces[0].text
    places = [(0, len(text))]
    for piece in pieces[1:]:
        start = len(text) + len(piece.gap)
        text += piece.gap + piece.text
        places.append((start, len(text)))
    return Parent(text=text, start=offset, spans=tuple(_spans(pieces, places, sizes)))


def _spans(pieces: list[_Piece], places: list[tuple[int, int]], sizes: Cutting) -> Iterator[Span]:
    first = 0
    for at in range(1, len(pieces) + 1):
        if at < len(pieces) and not _child_ends(pieces, places, first, at, sizes):
            continue
        named = next((p for p in pieces[first:at] if p.kind is not BlockKind.HEADING), pieces[first])
        yield Span(start=places[first][0], end=places[at - 1][1], heading=named.heading, page=named.page)
        first = at


def _child_ends(pieces: list[_Piece], places: list[tuple[int, int]], first: int, at: int, sizes: Cutting) -> bool:
    """Return whether the child that starts at `first` ends before the piece `at`."""
    held = places[at - 1][1] - places[first][0]
    if pieces[at].kind is BlockKind.HEADING:
        return held >= sizes.child_heading_min and pieces[at - 1].kind is not BlockKind.HEADING
    return places[at][1] - places[first][0] > sizes.child_max and pieces[at - 1].kind is not BlockKind.HEADING


def _pieces(blocks: Iterable[Block], sizes: Cutting) -> Iterator[_Piece]:
    path: list[tuple[int, str]] = []
    for block in blocks:
        text = block.text.strip("\n") if block.kind is BlockKind.CODE else block.text.strip()
        if not text.strip():
            continue
        if block.kind is BlockKind.HEADING:
            path = [(level, name) for level, name in path if level < block.level] + [(block.level, text)]
            text = f"{'#' * min(block.level, 6)} {text}"[: sizes.child_max]
        heading = " > ".join(name for _, name in path)
        gap = "\n" if block.kind is BlockKind.ROW else "\n\n"
        for part, inner in _parts(text, sizes):
            yield _Piece(part, gap if inner is None else inner, block.kind, block.level, heading, block.page)


def _parts(text: str, sizes: Cutting) -> Iterator[tuple[str, str | None]]:
    """Yield pieces of at most `child_max` characters, each with the white space before it; None for the first."""
    start = 0
    gap: str | None = None
    for stop in _stops(text, sizes):
        part = text[start:stop]
        body = part.rstrip()
        if body:
            yield body, gap
            gap = part[len(body) :]
        start = stop


def _stops(text: str, sizes: Cutting) -> Iterator[int]:
    """Yield where pieces end: after the last sentence that fits, else at a space, else at the limit."""
    start = last = 0
    for end in [*(found.end() for found in _SENTENCE_END.finditer(text)), len(text)]:
        if end - start > sizes.child_max and last > start:
            yield last
            start = last
        while end - start > sizes.child_max:
            space = text.rfind(" ", start + sizes.child_min, start + sizes.child_max)
            start = space + 1 if space > 0 else start + sizes.child_max
            yield start
        last = end
    yield len(text)
