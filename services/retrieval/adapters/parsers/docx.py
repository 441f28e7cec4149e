"""DOCX by python-docx: headings by style, paragraphs, tables with their column names, in document order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import docx
from docx.table import Table
from docx.text.paragraph import Paragraph

from services.retrieval.adapters.parsers import archive
from services.retrieval.adapters.parsers.tables import row_text
from services.retrieval.adapters.parsers.text import clean
from services.retrieval.domain.text import Block, BlockKind, Parsed

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
# Style names are stored in English whatever the language of Word; some writers translate them all the same.
_HEADING = re.compile(r"(?:heading|überschrift|titre|标题)\s*(\d)", re.IGNORECASE)


def parse(path: Path, name: str) -> Parsed:
    """Return the text of a DOCX file."""
    archive.check(path)
    document = docx.Document(str(path))
    blocks = list(_blocks(document))
    title = clean(document.core_properties.title or "").strip()
    first = next((block.text for block in blocks if block.kind is BlockKind.HEADING), "")
    return Parsed(media_type=MEDIA_TYPE, title=title or first, blocks=iter(blocks))


def _blocks(document: docx.document.Document) -> Iterator[Block]:
    for part in document.iter_inner_content():
        if isinstance(part, Paragraph):
            yield from _paragraph(part)
        elif isinstance(part, Table):
            yield from _table(part)


def _paragraph(paragraph: Paragraph) -> Iterator[Block]:
    text = clean(paragraph.text).strip()
    if not text:
        return
    style = (paragraph.style.name if paragraph.style else "") or ""
    heading = _HEADING.match(style)
    if style == "Title":
        yield Block(text=text, kind=BlockKind.HEADING, level=1)
    elif heading:
        yield Block(text=text, kind=BlockKind.HEADING, level=int(heading[1]))
    elif style.startswith("List"):
        yield Block(text=f"- {text}", kind=BlockKind.ROW)
    else:
        yield Block(text=text)


def _table(table: Table) -> Iterator[Block]:
    header: list[str] = []
    for row in table.rows:
        cells = _cells([clean(cell.text).strip().replace("\n", " ") for cell in row.cells])
        if not header:
            header = cells
        elif any(cells):
            yield Block(text=row_text(header, cells), kind=BlockKind.ROW)
    if header and len(table.rows) == 1:
        yield Block(text=row_text([], header), kind=BlockKind.ROW)


def _cells(texts: list[str]) -> list[str]:
    """Return the cells with what a merged cell repeats left out."""
    return ["" if at and text == texts[at - 1] and text else text for at, text in enumerate(texts)]
