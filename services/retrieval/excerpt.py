"""What is shown of a long passage: the found child and the paragraphs that share most with the question."""

from __future__ import annotations

import re
from dataclasses import dataclass

from services.retrieval.domain.library import Span
from services.retrieval.tokens import bigrams, overlap

_BREAK = re.compile(r"\n+")
GAP = "\n…\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Shown text, and the range of the passage's characters it comes from."""

    text: str
    start: int
    end: int


def excerpt(text: str, span: Span, question: str, limit: int) -> Excerpt:
    """Return at most `limit` characters: all of a short passage, else its best paragraphs in their order.

    The child that was found comes first of all; gaps are marked by an ellipsis.
    """
    if len(text) <= limit:
        return Excerpt(text=text, start=0, end=len(text))
    wanted = bigrams(question)
    paragraphs = _paragraphs(text)
    inside = [at for at, (start, end) in enumerate(paragraphs) if start < span.end and end > span.start]
    others = sorted(
        (at for at in range(len(paragraphs)) if at not in inside),
        key=lambda at: (-overlap(wanted, text[slice(*paragraphs[at])]), abs(at - inside[0]) if inside else at),
    )
    if sum(paragraphs[at][1] - paragraphs[at][0] + len(GAP) for at in inside) > limit:
        return _cut(text, span, limit)
    chosen: list[int] = []
    room = limit
    for at in [*inside, *others]:
        size = paragraphs[at][1] - paragraphs[at][0] + len(GAP)
        if size <= room:
            chosen.append(at)
            room -= size
    return _join(text, [paragraphs[at] for at in sorted(chosen)])


def _paragraphs(text: str) -> list[tuple[int, int]]:
    found, start = [], 0
    for gap in _BREAK.finditer(text):
        found.append((start, gap.start()))
        start = gap.end()
    found.append((start, len(text)))
    return [(a, b) for a, b in found if b > a]


def _cut(text: str, span: Span, limit: int) -> Excerpt:
    """Return a window around the child, for paragraphs longer than what may be shown."""
    spare = max(limit - (span.end - span.start), 0)
    start = max(0, min(span.start - spare // 2, len(text) - limit))
    return Excerpt(text=text[start : start + limit], start=start, end=min(start + limit, len(text)))


def _join(text: str, ranges: list[tuple[int, int]]) -> Excerpt:
    shown = ""
    last = None
    for start, end in ranges:
        if last is not None:
            between = text[last:start]
            shown += between if not between.strip() else GAP
        shown += text[start:end]
        last = end
    return Excerpt(text=shown, start=ranges[0][0], end=ranges[-1][1])
