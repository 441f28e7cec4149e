"""What a parsed document is stored as: portions, each a parent with its children and the words that find them.

Made where the file was parsed and only written down by the service, so it is pure: equal blocks, equal portions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import PurePosixPath

from services.retrieval.chunk import Cutting, Parent, cut
from services.retrieval.domain.library import Span
from services.retrieval.domain.text import Block, Parsed
from services.retrieval.tokens import join, terms

# A parcel is handed over in one go: about 50 children, half a millisecond for whoever takes it up.
PARCEL_CHARACTERS = 64 * 1024
PARCEL_TERMS = 2_000
# After these no word goes on, whatever Unicode's normal form makes of them.
_ENDS = "。！？；"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What is known of a document before its text: `title` is its own, or its file's name without an ending.

    `remark` is a sentence for people about a file that is not what its name says; empty for any other.
    """

    media_type: str
    title: str
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """A parent: its text, where that starts in the document's clean text (in characters), and its children.

    `tokens` holds for each of the spans what the index column does: the terms of its place and text, by spaces.
    """

    text: str
    start: int
    spans: tuple[Span, ...]
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """Some of a document's portions, in order, or behind the last of them some of its terms.

    `terms` tells in how many of all the portions each term stands; a document names each term once.
    """

    portions: tuple[Portion, ...] = ()
    terms: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutDocument:
    """A document with its parcels, read once and in order; reading on raises UnreadableFile when it cannot be had."""

    head: Head
    parcels: AsyncIterator[Parcel]


def head_of(parsed: Parsed, path: str) -> Head:
    """Return what the document at this path of its source is called and is."""
    return Head(
        media_type=parsed.media_type, title=parsed.title.strip() or PurePosixPath(path).stem, remark=parsed.remark
    )


def parcels(blocks: Iterable[Block], head: Head, path: str, sizes: Cutting) -> Iterator[Parcel]:
    """Yield the document at `path` as parcels of some PARCEL_CHARACTERS or PARCEL_TERMS; nothing without any text.

    Memory is one parcel and the document's vocabulary.
    """
    words = _Words(f"{head.title}\n{PurePosixPath(path).stem}\n")
    held: list[Portion] = []
    weight = 0
    for parent in cut(blocks, sizes):
        portion = words.portion(parent)
        held.append(portion)
        weight += len(portion.text) + sum(map(len, portion.tokens)) + sum(len(span.heading) for span in portion.spans)
        if weight >= PARCEL_CHARACTERS:
            yield Parcel(portions=tuple(held))
            held, weight = [], 0
    if held:
        yield Parcel(portions=tuple(held))
    left = iter(words.counts.items())
    while some := dict(islice(left, PARCEL_TERMS)):
        yield Parcel(terms=some)


class _Words:
    """Finds the terms of a document's parents one after another and counts the parents that hold each."""

    def __init__(self, named: str) -> None:
        self.counts: Counter[str] = Counter()
        self._named = named
        # Children under one heading follow each other.
        self._heading = ""
        self._place = terms(named)

    def portion(self, parent: Parent) -> Portion:
        children = [terms(parent.text[span.start : span.end]) for span in parent.spans]
        self.counts.update(_distinct(parent, children))
        tokens = (join([*self._place_of(span), *own]) for span, own in zip(parent.spans, children, strict=True))
        return Portion(text=parent.text, start=parent.start, spans=parent.spans, tokens=tuple(tokens))

    def _place_of(self, span: Span) -> list[str]:
        if span.heading != self._heading:
            self._heading = span.heading
            self._place = terms(self._named + span.heading)
        return self._place


def _distinct(parent: Parent, children: list[list[str]]) -> set[str]:
    """Return the terms of the parent's text: its children's, unless a word may reach from one into the next."""
    text = parent.text
    if all(text[a.end : b.start].isspace() or text[a.end - 1] in _ENDS for a, b in pairwise(parent.spans)):
        return {term for found in children for term in found}
    return set(terms(text))
