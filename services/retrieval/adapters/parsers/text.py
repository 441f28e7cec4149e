"""Plain text, by paragraphs, read as a stream."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from services.retrieval.adapters.parsers.encoding import encoding_of
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.text import Block, Parsed

# A paragraph that never ends is cut here, so that memory stays bounded.
MAX_PARAGRAPH = 100_000
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\ufffe\uffff]")


def clean(text: str) -> str:
    """Return the text without control characters; NUL would end it for C libraries."""
    return _CONTROLS.sub("", text)


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file without their ends; UnreadableFile when it is no text."""
    encoding = encoding_of(path)
    if encoding is None:
        raise UnreadableFile("UNSUPPORTED_DOCUMENT", "the file is binary and of no kind that can be read")
    # `replace`: one broken byte late in a file is no reason to lose the file.
    with path.open(encoding=encoding, errors="replace", newline=None) as file:
        while line := file.readline(MAX_PARAGRAPH):
            yield clean(line.rstrip("\n"))


def read(path: Path) -> str:
    """Return a whole text file."""
    return "\n".join(lines(path))


def parse(path: Path, name: str) -> Parsed:
    """Return the paragraphs of a text file."""
    return Parsed(media_type="text/plain", title="", blocks=paragraphs(lines(path)))


def paragraphs(source: Iterator[str]) -> Iterator[Block]:
    """Yield paragraphs, which blank lines separate."""
    held: list[str] = []
    size = 0
    for line in source:
        if line.strip() and size < MAX_PARAGRAPH:
            held.append(line)
            size += len(line)
            continue
        if held:
            yield Block(text="\n".join(held))
        held, size = ([line], len(line)) if line.strip() else ([], 0)
    if held:
        yield Block(text="\n".join(held))
