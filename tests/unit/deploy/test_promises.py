"""The README promises what survives what: each cell of that table names a test that is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SECTION = re.search(
    r"^## What survives what\n(.*?)(?=^## )", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\[[^\]]+\]\[(\w+)\]")
DEFINITION = re.compile(r'^\[(\w+)\]: (\S+) "(\w+)"$', re.MULTILINE)
FAULTS = 13


def section() -> str:
    assert SECTION is not None, "README.md has no section 'What survives what'"
    return SECTION.group(1)


def rows() -> list[list[str]]:
    lines = [line for line in section().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_cell_links_to_a_test_or_says_that_nothing_is_promised() -> None:
    assert len(rows()) >= FAULTS
    for fault, *cells in rows():
        assert len(cells) == 3, fault
        assert any(cell != "—" for cell in cells), fault
        for cell in cells:
            assert cell == "—" or LINK.fullmatch(cell), f"{fault}: {cell!r} names no test"


def test_every_test_that_is_named_exists() -> None:
    defined = {key: (path, name) for key, path, name in DEFINITION.findall(section())}
    used = {key for row in rows() for cell in row[1:] for key in LINK.findall(cell)}
    assert used == set(defined)
    for path, name in defined.values():
        tree = ast.parse((ROOT / path).read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in functions, f"{path} has no {name}"
