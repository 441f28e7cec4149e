"""Pages of a PDF as pictures, for models that see; runs in the parsing process, within its limits."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pypdfium2 as pdfium  # type: ignore[import-untyped]

# Pixels of a page's longer side: small type stays readable, a page costs about 150 KiB.
LONGER_SIDE = 1024


def pages(path: Path, most: int) -> Iterator[bytes]:
    """Yield the first `most` pages of a PDF as PNG; nothing for a file that is none."""
    try:
        document = pdfium.PdfDocument(path)
    except pdfium.PdfiumError:
        return
    for index in range(min(len(document), most)):
        page = document[index]
        bitmap = page.render(scale=LONGER_SIDE / max(page.get_size()))
        file = io.BytesIO()
        bitmap.to_pil().save(file, "PNG", optimize=True)
        yield file.getvalue()
