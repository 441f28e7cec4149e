"""What service and parsing process say to each other, one line each: jobs go in, replies come out.

A job has one line of reply, but for CutJob: its head, its parcels, then END. In place of any line a refusal may come,
and then nothing more. The process has read a hostile file, so nothing it says is believed that could not be: whoever
reads raises Nonsense.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import orjson

from services.retrieval.chunk import Cutting
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.library import Span
from services.retrieval.domain.sites import PageLinks
from services.retrieval.domain.text import PlainText
from services.retrieval.portions import Head, Parcel, Portion
from services.retrieval.tokens import MAX_TERM

# Bytes of a parcel's line. Many times what a parcel takes, unless headings are as long as chapters.
LONGEST = 2 * 2**20
END = b"{}"
# A parent begins this many characters behind the end of the one before.
GAP = 2
# A heading of one letter becomes ten characters of clean text; one character in its normal form at most 18 terms.
MOST_OF_A_CHARACTER = 10
MOST_TERMS_OF_A_CHARACTER = 18


class Nonsense(Exception):
    """The process said what no parser says: it has a fault, or is not its own master any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutJob:
    """Parse and cut the file at `path`, called `name`, with at most `max_characters` of text."""

    path: str
    name: str
    max_characters: int
    sizes: Cutting


@dataclass(frozen=True, slots=True, kw_only=True)
class TextJob:
    """Tell the first `most` characters of the file's text, which may have `max_characters`."""

    path: str
    name: str
    max_characters: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesJob:
    """Write the first `most` pages of a PDF to `out` as PNG, one behind the other; the reply tells their sizes."""

    path: str
    out: str
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksJob:
    """Tell where the page at `path`, which `url` answered, leads."""

    path: str
    url: str


Job: TypeAlias = CutJob | TextJob | PagesJob | LinksJob
_JOBS: Mapping[str, type[CutJob | TextJob | PagesJob | LinksJob]] = {
    kind.__name__: kind for kind in (CutJob, TextJob, PagesJob, LinksJob)
}


def pack_job(job: Job) -> bytes:
    """Return the line of a job."""
    return json.dumps([type(job).__name__, asdict(job)]).encode()


def unpack_job(line: bytes) -> Job:
    """Return the job of a line."""
    kind, fields = json.loads(line)
    if "sizes" in fields:
        fields["sizes"] = Cutting(**fields["sizes"])
    return _JOBS[kind](**fields)


def pack(value: object) -> bytes:
    """Return a value as one line of JSON; halves of characters, which UTF-8 cannot hold, become question marks."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def pack_refusal(refusal: UnreadableFile) -> bytes:
    """Return the line that says why a file cannot be read."""
    return pack({"reason": refusal.reason, "message": refusal.message})


def pack_head(head: Head) -> bytes:
    """Return the first line of a document."""
    return pack(asdict(head))


def pack_parcel(parcel: Parcel) -> bytes:
    """Return the line of a parcel, or raise UnreadableFile when it is longer than LONGEST."""
    portions = [
        [
            one.start,
            one.text,
            [[s.start, s.end, s.page, s.heading, tokens] for s, tokens in zip(one.spans, one.tokens, strict=True)],
        ]
        for one in parcel.portions
    ]
    line = pack({"portions": portions, "terms": parcel.terms})
    if len(line) > LONGEST:
        raise UnreadableFile("TOO_LARGE", f"a passage of the file and its headings take more than {LONGEST:,} bytes")
    return line


def pack_text(text: PlainText) -> bytes:
    """Return the reply to TextJob."""
    return pack(asdict(text))


def pack_sizes(sizes: list[int]) -> bytes:
    """Return the reply to PagesJob."""
    return pack({"sizes": sizes})


def pack_links(links: PageLinks) -> bytes:
    """Return the reply to LinksJob."""
    return pack(asdict(links))


def unpack_head(line: bytes) -> Head:
    """Return a document's head, or raise UnreadableFile or Nonsense."""
    told = _told(line)
    return Head(media_type=_text(told, "media_type"), title=_text(told, "title"), remark=_text(told, "remark"))


def unpack_text(line: bytes) -> PlainText:
    """Return the reply to TextJob, or raise UnreadableFile or Nonsense."""
    told = _told(line)
    return PlainText(
        media_type=_text(told, "media_type"),
        title=_text(told, "title"),
        text=_text(told, "text"),
        truncated=_flag(told, "truncated"),
    )


def unpack_sizes(line: bytes) -> list[int]:
    """Return the reply to PagesJob, or raise UnreadableFile or Nonsense."""
    sizes = _told(line).get("sizes")
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise Nonsense("sizes that are none")
    return sizes


def unpack_links(line: bytes) -> PageLinks:
    """Return the reply to LinksJob, or raise UnreadableFile or Nonsense."""
    told = _told(line)
    found = told.get("found")
    if not isinstance(found, list) or not all(isinstance(url, str) for url in found):
        raise Nonsense("links that are none")
    return PageLinks(
        found=tuple(found), keep=_flag(told, "keep"), follow=_flag(told, "follow"), sitemap=_flag(told, "sitemap")
    )


class Intake:
    """Reads the lines behind a document's head and holds them to what a document of `max_characters` can be."""

    def __init__(self, max_characters: int) -> None:
        self._most = max_characters * MOST_OF_A_CHARACTER
        self._portions = 0
        self._next = 0
        self._terms = 0

    def take(self, line: bytes) -> Parcel | None:
        """Return the next parcel, None for END. Raises UnreadableFile or Nonsense, after which nothing is to be read.

        What it returns fits what came before: portions follow each other without a hole, children lie in order inside
        their parent, terms come behind all portions, and neither more text nor more terms than the file can hold.
        """
        told = _told(line)
        if not told:
            if not self._portions:
                raise Nonsense("an end before the first portion")
            return None
        raw_portions, raw_terms = told.get("portions"), told.get("terms")
        if not isinstance(raw_portions, list) or not isinstance(raw_terms, dict) or not (raw_portions or raw_terms):
            raise Nonsense("neither portions nor terms")
        return Parcel(portions=tuple(map(self._portion, raw_portions)), terms=self._counted(raw_terms))

    def _portion(self, raw: Any) -> Portion:
        try:
            start, text, children = raw
            spans, tokens = zip(*map(_child, children), strict=True)
        except (TypeError, ValueError):
            raise Nonsense("a portion of another form") from None
        in_turn = not self._terms and type(start) is int and start == self._next
        if not in_turn or not isinstance(text, str):
            raise Nonsense("a portion out of its place")
        if not _in_order(spans, len(text)):
            raise Nonsense("children that their portion cannot have")
        self._portions += 1
        self._next = start + len(text) + GAP
        if self._next - GAP > self._most:
            raise Nonsense("more text than the file may have")
        return Portion(text=text, start=start, spans=spans, tokens=tokens)

    def _counted(self, terms: dict[str, Any]) -> dict[str, int]:
        self._terms += len(terms)
        if self._terms > self._next * MOST_TERMS_OF_A_CHARACTER:
            raise Nonsense("more terms than the text can have")
        for term, count in terms.items():
            if not 0 < len(term) <= MAX_TERM or type(count) is not int or not 0 < count <= self._portions:
                raise Nonsense("a term that cannot be")
        return terms


def _child(raw: Any) -> tuple[Span, str]:
    """Return a child and its tokens; TypeError or ValueError when it is none."""
    start, end, page, heading, tokens = raw
    if not (type(start) is type(end) is type(page) is int and page >= 0):
        raise TypeError("places are whole numbers")
    if not (isinstance(heading, str) and isinstance(tokens, str)):
        raise TypeError("heading and tokens are text")
    return Span(start=start, end=end, heading=heading, page=page), tokens


def _in_order(spans: tuple[Span, ...], length: int) -> bool:
    """Return whether these are children of a text so long: each behind the one before, none empty."""
    end = 0
    for span in spans:
        if not end <= span.start < span.end:
            return False
        end = span.end
    return end <= length


def _told(line: bytes) -> dict[str, Any]:
    """Return what a line holds; UnreadableFile when that is a refusal."""
    try:
        told = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise Nonsense("a line that is no JSON") from None
    if not isinstance(told, dict):
        raise Nonsense("a line that is no object")
    if "reason" in told:
        raise UnreadableFile(_text(told, "reason"), _text(told, "message"))
    return told


def _text(told: Mapping[str, Any], field: str) -> str:
    value = told.get(field)
    if not isinstance(value, str):
        raise Nonsense(f"{field} is no text")
    return value


def _flag(told: Mapping[str, Any], field: str) -> bool:
    value = told.get(field)
    if not isinstance(value, bool):
        raise Nonsense(f"{field} is neither true nor false")
    return value
