"""HTML: the main content by headings, paragraphs, lists and tables; scripts, styles and page furniture are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from selectolax.lexbor import LexborHTMLParser, LexborNode

from services.retrieval.adapters.parsers import text
from services.retrieval.adapters.parsers.encoding import encoding_of
from services.retrieval.adapters.parsers.tables import row_text
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.text import Block, BlockKind, Parsed

_FURNITURE = "script style noscript template iframe object svg nav footer aside form head"
_DROPPED = _FURNITURE.replace(" ", ", ")
_BLOCKS = "html body main article section div header center blockquote figure details dl ul ol fieldset address"
_CONTAINERS = frozenset(_BLOCKS.split())
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_CHARSET = re.compile(rb"charset\s*=\s*[\"']?\s*([A-Za-z0-9_-]+)", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\r\n\f\xa0]+")
# A document nested deeper is no document; the walk recurses.
MAX_DEPTH = 200


def parse(path: Path, name: str) -> Parsed:
    """Return the main content of an HTML file."""
    return parse_markup(_decode(path))


def parse_markup(markup: str) -> Parsed:
    """Return the main content of HTML text; the title is the first h1's, else the title element's."""
    tree = LexborHTMLParser(markup)
    title_node = tree.css_first("title")
    title = _words(title_node.text()) if title_node else ""
    for node in tree.css(_DROPPED):
        node.decompose()
    root = tree.css_first("main") or tree.css_first("article") or tree.body
    blocks = list(_walk(root, 0)) if root else []
    heading = next((block.text for block in blocks if block.kind is BlockKind.HEADING and block.level == 1), "")
    return Parsed(media_type="text/html", title=heading or title, blocks=iter(blocks))


def _decode(path: Path) -> str:
    raw = path.read_bytes()
    declared = _CHARSET.search(raw[:2048])
    encoding = encoding_of(path)
    # UTF-8 is never a coincidence; otherwise the page knows best.
    if encoding not in ("utf-8", "utf-8-sig", "utf-16") and declared:
        encoding = declared[1].decode("ascii")
    if encoding is None:
        raise UnreadableFile("UNSUPPORTED_DOCUMENT", "the file is named as HTML but is binary")
    try:
        return text.clean(raw.decode(encoding, errors="replace"))
    except LookupError:
        return text.clean(raw.decode("utf-8", errors="replace"))


def _walk(node: LexborNode, depth: int) -> Iterator[Block]:
    loose: list[str] = []
    for child in node.iter(include_text=True):
        tag = child.tag or ""
        if not _is_block(tag) or depth > MAX_DEPTH:
            loose.append("\n" if tag == "br" else child.text(deep=True))
            continue
        yield from _paragraph(loose)
        loose = []
        yield from _block(child, tag, depth)
    yield from _paragraph(loose)


def _is_block(tag: str) -> bool:
    return tag in _CONTAINERS or tag in _HEADINGS or tag in ("p", "li", "dt", "dd", "pre", "table", "figcaption", "hr")


def _block(node: LexborNode, tag: str, depth: int) -> Iterator[Block]:
    if tag in _HEADINGS:
        yield Block(text=_words(node.text(deep=True)), kind=BlockKind.HEADING, level=_HEADINGS[tag])
    elif tag == "table":
        yield from _table(node)
    elif tag == "pre":
        yield Block(text=node.text(deep=True), kind=BlockKind.CODE)
    elif tag == "li":
        for block in _walk(node, depth + 1):
            yield Block(text=f"- {block.text}", kind=BlockKind.ROW) if block.kind is BlockKind.TEXT else block
    else:
        yield from _walk(node, depth + 1)


def _paragraph(loose: list[str]) -> Iterator[Block]:
    words = _words("".join(loose))
    if words:
        yield Block(text=words)


def _table(node: LexborNode) -> Iterator[Block]:
    header: list[str] = []
    caption = node.css_first("caption")
    if caption:
        yield Block(text=_words(caption.text(deep=True)))
    for row in node.css("tr"):
        cells = [_words(cell.text(deep=True, separator=" ")) for cell in row.css("th, td")]
        if not header and (row.css_first("td") is None):
            header = cells
        elif any(cells):
            yield Block(text=row_text(header, cells), kind=BlockKind.ROW)


def _words(raw: str) -> str:
    return _SPACE.sub(" ", raw).strip()
