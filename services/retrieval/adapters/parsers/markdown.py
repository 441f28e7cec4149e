"""Markdown: headings, paragraphs, lists, fenced code and tables whose rows carry their column names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from services.retrieval.adapters.parsers import text
from services.retrieval.adapters.parsers.tables import row_text
from services.retrieval.domain.text import Block, BlockKind, Parsed

_ATX = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_RULE = re.compile(r"^\s*\|?(\s*:?-{2,}:?\s*\|)*\s*:?-{2,}:?\s*\|?\s*$")
_SETEXT = re.compile(r"^ {0,3}(=+|-{3,})\s*$")
_FRONT_TITLE = re.compile(r"^title:\s*[\"']?(.+?)[\"']?\s*$", re.IGNORECASE)
# Bounded, and no bracket inside brackets: a line of a million openings must not be read to its end from each of them.
_INLINE = (
    (re.compile(r"!\[([^\[\]]*)\]\([^)]{0,2000}\)"), r"\1"),
    (re.compile(r"\[([^\[\]]+)\]\([^)]{0,2000}\)"), r"\1"),
    (re.compile(r"(\*\*|__)(?=\S)(.{1,2000}?)(?<=\S)\1"), r"\2"),
    (re.compile(r"<!--.{0,2000}?-->"), ""),
)


def parse(path: Path, name: str) -> Parsed:
    """Return the blocks of a Markdown file; its title is the front matter's or the first heading."""
    content = text.read(path).split("\n")
    title, body = _front_matter(content)
    blocks = list(_blocks(body))
    first = next((block.text for block in blocks if block.kind is BlockKind.HEADING), "")
    return Parsed(media_type="text/markdown", title=title or first, blocks=iter(blocks))


def _front_matter(content: list[str]) -> tuple[str, list[str]]:
    if not content or content[0].strip() != "---":
        return "", content
    for at, line in enumerate(content[1:100], start=1):
        if line.strip() in ("---", "..."):
            titles = [found[1] for found in map(_FRONT_TITLE.match, content[1:at]) if found]
            return (titles[0] if titles else ""), content[at + 1 :]
    return "", content


def _blocks(body: list[str]) -> Iterator[Block]:
    held: list[str] = []
    at = 0
    while at < len(body):
        line = body[at]
        heading, fence = _ATX.match(line), _FENCE.match(line)
        if heading or fence or not line.strip() or _starts_table(body, at):
            yield from _flush(held)
            held = []
        if heading:
            yield Block(text=_plain(heading[2]), kind=BlockKind.HEADING, level=len(heading[1]))
        elif fence:
            at, block = _code(body, at, fence[1])
            yield block
        elif _starts_table(body, at):
            at, rows = _table(body, at)
            yield from rows
        elif held and _SETEXT.match(line):
            level = 1 if "=" in line else 2
            yield Block(text=_plain(" ".join(held)), kind=BlockKind.HEADING, level=level)
            held = []
        elif line.strip():
            held.append(line)
        at += 1
    yield from _flush(held)


def _flush(held: list[str]) -> Iterator[Block]:
    if held:
        yield Block(text=_plain("\n".join(held)))


def _code(body: list[str], at: int, fence: str) -> tuple[int, Block]:
    end = at + 1
    while end < len(body) and not body[end].lstrip().startswith(fence):
        end += 1
    return end, Block(text="\n".join(body[at + 1 : end]), kind=BlockKind.CODE)


def _starts_table(body: list[str], at: int) -> bool:
    return "|" in body[at] and at + 1 < len(body) and "|" in body[at + 1] and bool(_RULE.match(body[at + 1]))


def _table(body: list[str], at: int) -> tuple[int, list[Block]]:
    header = _cells(body[at])
    rows = []
    end = at + 2
    while end < len(body) and "|" in body[end]:
        rows.append(Block(text=row_text(header, _cells(body[end])), kind=BlockKind.ROW))
        end += 1
    return end - 1, rows


def _cells(line: str) -> list[str]:
    bare = line.strip().removeprefix("|").removesuffix("|")
    return [_plain(cell.replace("\\|", "|").strip()) for cell in re.split(r"(?<!\\)\|", bare)]


def _plain(line: str) -> str:
    for pattern, replacement in _INLINE:
        line = pattern.sub(replacement, line)
    return line
