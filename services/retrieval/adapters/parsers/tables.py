"""How table rows read: each cell with its column's name, so that a row found alone still makes sense."""

from __future__ import annotations

from collections.abc import Sequence


def row_text(header: Sequence[str], cells: Sequence[str]) -> str:
    """Return `Name: value; Name: value`; a cell without a name stands alone, an empty one is left out."""
    named = [
        f"{header[at]}: {cell}" if at < len(header) and header[at] else cell for at, cell in enumerate(cells) if cell
    ]
    return "; ".join(named)
