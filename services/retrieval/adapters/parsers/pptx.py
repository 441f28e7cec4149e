"""PPTX by python-pptx: one heading a slide, its text, tables and notes; the slide's number is the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pptx

from services.retrieval.adapters.parsers import archive
from services.retrieval.adapters.parsers.tables import row_text
from services.retrieval.adapters.parsers.text import clean
from services.retrieval.domain.text import Block, BlockKind, Parsed

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.presentationml.presentation"


def parse(path: Path, name: str) -> Parsed:
    """Return the text of a PPTX file."""
    archive.check(path)
    presentation = pptx.Presentation(str(path))
    blocks = [block for number, slide in enumerate(presentation.slides, start=1) for block in _slide(slide, number)]
    title = clean(presentation.core_properties.title or "").strip()
    # python-pptx's own template is called this; it is nobody's title.
    title = "" if title == "PowerPoint Presentation" else title
    first = next((block.text for block in blocks if block.kind is BlockKind.HEADING), "")
    return Parsed(media_type=MEDIA_TYPE, title=title or first, blocks=iter(blocks))


def _slide(slide: Any, number: int) -> Iterator[Block]:
    heading = slide.shapes.title
    named = clean(heading.text_frame.text).strip() if heading is not None else ""
    yield Block(text=named or f"Slide {number}", kind=BlockKind.HEADING, level=2, page=number)
    for shape in _shapes(slide.shapes):
        if heading is None or shape.shape_id != heading.shape_id:
            yield from _shape(shape, number)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        notes = clean(slide.notes_slide.notes_text_frame.text).strip()
        if notes:
            yield Block(text=f"Notes: {notes}", page=number)


def _shapes(shapes: Any) -> Iterator[Any]:
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        else:
            yield shape


def _shape(shape: Any, number: int) -> Iterator[Block]:
    if getattr(shape, "has_table", False):
        rows = [[clean(cell.text).strip() for cell in row.cells] for row in shape.table.rows]
        for cells in rows[1:]:
            yield Block(text=row_text(rows[0], cells), kind=BlockKind.ROW, page=number)
    elif shape.has_text_frame:
        text = clean(shape.text_frame.text.replace("\v", "\n")).strip()
        if text:
            yield Block(text=text, page=number)
