"""XLSX by openpyxl, read as a stream: a heading a sheet, a line a row, each cell with its column's name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import IO, Any

import openpyxl

from services.retrieval.adapters.parsers import archive
from services.retrieval.adapters.parsers.tables import row_text
from services.retrieval.adapters.parsers.text import clean
from services.retrieval.domain.text import Block, BlockKind, Parsed

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def parse(path: Path, name: str) -> Parsed:
    """Return the rows of an XLSX file; formulas give the value that was last computed."""
    archive.check(path)
    # An open file, because a path must end in .xlsx for openpyxl, and staged files have names of their own.
    file = path.open("rb")
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    except BaseException:
        file.close()
        raise
    title = clean(book.properties.title or "").strip()
    return Parsed(media_type=MEDIA_TYPE, title=title, blocks=_sheets(file, book))


def _sheets(file: IO[bytes], book: Any) -> Iterator[Block]:
    with file:
        for sheet in book.worksheets:
            yield from _rows(sheet)
        book.close()


def _rows(sheet: Any) -> Iterator[Block]:
    named = False
    header: list[str] = []
    for row in sheet.iter_rows(values_only=True):
        cells = [_cell(value) for value in row]
        if not any(cells):
            continue
        if not named:
            yield Block(text=clean(sheet.title), kind=BlockKind.HEADING, level=2)
            named = True
        if not header and sum(1 for cell in cells if cell) > 1:
            header = cells
            continue
        yield Block(text=row_text(header, cells), kind=BlockKind.ROW)


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case datetime():
            midnight = value.time() == time()
            return value.date().isoformat() if midnight else value.isoformat(sep=" ", timespec="minutes")
        case date() | time():
            return value.isoformat()
        case float():
            return f"{value:.10g}"
        case _:
            return clean(str(value)).strip().replace("\n", " ")
