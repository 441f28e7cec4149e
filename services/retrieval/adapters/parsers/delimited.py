"""CSV and TSV, read as a stream: a line a row, each cell with its column's name."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from services.retrieval.adapters.parsers.tables import row_text
from services.retrieval.adapters.parsers.text import lines
from services.retrieval.domain.text import Block, BlockKind, Parsed

csv.field_size_limit(1_000_000)
# The sniffer takes time by the square of what it is shown.
SNIFFED = 4000


def parse(path: Path, name: str) -> Parsed:
    """Return the rows of a delimited file; the delimiter is found from its first lines."""
    source = lines(path)
    head = list(islice(source, 20))
    try:
        dialect: type[csv.Dialect] = csv.Sniffer().sniff("\n".join(head)[:SNIFFED], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel_tab if name.lower().endswith(".tsv") else csv.excel
    return Parsed(media_type="text/csv", title="", blocks=_rows(csv.reader(chain(head, source), dialect)))


def _rows(rows: Iterator[list[str]]) -> Iterator[Block]:
    header: list[str] = []
    for row in rows:
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if not header:
            header = cells
            continue
        yield Block(text=row_text(header, cells), kind=BlockKind.ROW)
    if header:
        yield Block(text=f"Columns: {', '.join(name for name in header if name)}")
