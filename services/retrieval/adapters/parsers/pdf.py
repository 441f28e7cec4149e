"""PDF by pypdfium2: paragraphs by page, headings by their larger type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pypdfium2 as pdfium  # type: ignore[import-untyped]
import pypdfium2.raw as pdfium_raw  # type: ignore[import-untyped]

from services.retrieval.adapters.parsers.text import clean
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.text import Block, BlockKind, Parsed

# Larger than the body's type by this much is a heading; the largest of the document is level 1.
HEADING_RATIO = 1.15
HEADING_CHARACTERS = 150
_HYPHENATED = re.compile(r"(?<=[a-z])[-\u00ad\ufffe]\n(?=[a-z])")
_CJK_END = re.compile(r"[\u3040-\u30ff\u3400-\u9fff，、]\Z")


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    size: float
    top: float
    bottom: float
    page: int


def parse(path: Path, name: str) -> Parsed:
    """Return the text of a PDF; UnreadableFile when it is encrypted, damaged or holds only pictures."""
    try:
        document = pdfium.PdfDocument(path)
    except pdfium.PdfiumError as refusal:
        raise _unreadable(refusal) from refusal
    body = _body_size(document)
    blocks = _blocks(document, body)
    first = next(blocks, None)
    if first is None:
        raise UnreadableFile(
            "NO_TEXT", "the PDF holds no text, only pictures; run text recognition (OCR) over it first"
        )
    title = clean(document.get_metadata_value("Title")).strip()
    return Parsed(media_type="application/pdf", title=title or _heading_title(first), blocks=_chained(first, blocks))


def _unreadable(refusal: pdfium.PdfiumError) -> UnreadableFile:
    if pdfium_raw.FPDF_GetLastError() == pdfium_raw.FPDF_ERR_PASSWORD or "password" in str(refusal).lower():
        return UnreadableFile("ENCRYPTED", "the PDF needs a password; remove it and upload the file again")
    return UnreadableFile("UNSUPPORTED_DOCUMENT", "the PDF is damaged and cannot be opened")


def _heading_title(first: Block) -> str:
    return first.text if first.kind is BlockKind.HEADING else ""


def _chained(first: Block, rest: Iterator[Block]) -> Iterator[Block]:
    yield first
    yield from rest


def _body_size(document: pdfium.PdfDocument) -> float:
    """Return the type size that most characters of the first pages have."""
    sizes: Counter[float] = Counter()
    for number in range(min(len(document), 10)):
        for line in _lines(document, number):
            sizes[round(line.size, 1)] += len(line.text)
    return sizes.most_common(1)[0][0] if sizes else 0.0


def _blocks(document: pdfium.PdfDocument, body: float) -> Iterator[Block]:
    for number in range(len(document)):
        held: list[_Line] = []
        for line in _lines(document, number):
            if _is_heading(line, body):
                yield from _paragraph(held)
                held = []
                level = 1 if line.size > body * 1.6 else 2
                yield Block(text=line.text, kind=BlockKind.HEADING, level=level, page=line.page)
                continue
            if held and _gap(held[-1], line) > max(held[-1].size, 1.0) * 0.9:
                yield from _paragraph(held)
                held = []
            held.append(line)
        yield from _paragraph(held)


def _is_heading(line: _Line, body: float) -> bool:
    return body > 0 and line.size > body * HEADING_RATIO and len(line.text) <= HEADING_CHARACTERS


def _gap(above: _Line, below: _Line) -> float:
    """Return the white space between two lines; a jump up the page (a new column) is a gap as well."""
    distance = above.bottom - below.top
    return distance if distance > -above.size else above.size * 2


def _paragraph(lines: list[_Line]) -> Iterator[Block]:
    text = ""
    for line in lines:
        joiner = "" if not text or _CJK_END.search(text) else "\n"
        text += joiner + line.text
    text = _HYPHENATED.sub("", text).strip()
    if text:
        yield Block(text=text, page=lines[0].page)


def _lines(document: pdfium.PdfDocument, number: int) -> Iterator[_Line]:
    page = document[number]
    text_page = page.get_textpage()
    try:
        count = text_page.count_chars()
        whole = text_page.get_text_range() if count else ""
        start = 0
        for raw in re.split(r"\r?\n", whole):
            text = clean(raw).strip()
            if text:
                first = start + len(raw) - len(raw.lstrip())
                yield _measured(text_page, text, min(first, count - 1), number)
            start += len(raw) + 2  # the text has \r\n between lines, and each is a character of the page
    finally:
        text_page.close()
        page.close()


def _measured(text_page: pdfium.PdfTextPage, text: str, at: int, number: int) -> _Line:
    size = pdfium_raw.FPDFText_GetFontSize(text_page, at)
    _, bottom, _, top = text_page.get_charbox(at, loose=True)
    # Scaled type reports its nominal size; what is seen is the height of its box.
    return _Line(text=text, size=max(top - bottom, 0.0) or size, top=top, bottom=bottom, page=number + 1)
