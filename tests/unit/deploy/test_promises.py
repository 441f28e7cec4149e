"""What README.md promises to survive and docs/threat-model.md to withstand: each promise links to its test."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LINK = re.compile(r"\[[^\]]+\]\[(\w+)\]")
DEFINITION = re.compile(r'^\[(\w+)\]: (\S+) "(\w+)"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Promises:
    """Tables of a page, all below one heading, whose cells after the first link to tests; `least` is how many rows."""

    page: str
    heading: str
    least: int

    @property
    def text(self) -> str:
        return (ROOT / self.page).read_text(encoding="utf-8")

    def rows(self) -> list[list[str]]:
        section = re.search(rf"^{self.heading}\n(.*?)(?=^## |\Z)", self.text, re.MULTILINE | re.DOTALL)
        assert section is not None, f"{self.page} has no section '{self.heading}'"
        lines = [line for line in section.group(1).splitlines() if line.startswith("|")]
        heads = {number - 1 for number, line in enumerate(lines) if line.startswith("|---")}
        cells = [line for number, line in enumerate(lines) if number not in heads and not line.startswith("|---")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in cells]


PAGES = [
    Promises("README.md", "## What survives what", 13),
    Promises("docs/threat-model.md", "## Threats", 33),
]


@pytest.mark.parametrize("promises", PAGES, ids=lambda p: p.page)
def test_every_cell_links_to_a_test_or_says_that_nothing_is_promised(promises: Promises) -> None:
    rows = promises.rows()
    assert len(rows) >= promises.least
    for what, *cells in rows:
        assert any(cell != "—" for cell in cells), what
        for cell in cells:
            assert cell == "—" or LINK.fullmatch(cell), f"{what}: {cell!r} names no test"


@pytest.mark.parametrize("promises", PAGES, ids=lambda p: p.page)
def test_every_test_that_is_named_exists(promises: Promises) -> None:
    defined = {key: (path, name) for key, path, name in DEFINITION.findall(promises.text)}
    used = {key for row in promises.rows() for cell in row[1:] for key in LINK.findall(cell)}
    assert used == set(defined)
    for path, name in defined.values():
        tree = ast.parse(((ROOT / promises.page).parent / path).read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in functions, f"{path} has no {name}"
