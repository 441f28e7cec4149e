"""Links between the pages of the documentation lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_to_a_file_and_its_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        there = page.parent / target if target else page
        assert there.exists(), f"{page.name}: {target}"
        if anchor and there.suffix == ".md":
            text = there.read_text(encoding="utf-8")
            headings = {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
            assert anchor in headings, f"{page.name}: {target}#{anchor}"


def slug(heading: str) -> str:
    """Return a heading's anchor, as the usual renderers make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
