"""The filter language."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.retrieval.domain.errors import FilterInvalid
from services.retrieval.domain.filters import matches, parse
from services.retrieval.domain.library import Document

DOCUMENT = Document(
    id="d",
    tenant="t",
    source_id="s",
    path="policies/Travel 2026.pdf",
    title="Travel",
    media_type="application/pdf",
    size=2048,
    ingested_at=datetime(2026, 3, 1, tzinfo=UTC),
    metadata={"department": "HR", "level": "2"},
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("type = pdf", True),
        ("type = application/pdf", True),
        ("type != pdf", False),
        ('path ~ "policies/*"', True),
        ('path = "policies/travel 2026.PDF"', True),
        ("path ~ *.docx", False),
        ("source = handbook", True),
        ("title = travel", True),
        ("date >= 2026-03-01", True),
        ("date < 2026-03-01T00:00:00+00:00", False),
        ("size > 2000 and size < 3000", True),
        ("meta.department = hr", True),
        ("meta.missing = x", False),
        ("meta.missing != x", True),
        ("not meta.department = HR", False),
        ("type = docx or (meta.level = 2 and not path ~ x*)", True),
        ("type = docx or type = pdf and meta.level = 3", False),
        ('title = "or"', False),
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    condition = parse(text)
    assert condition is not None
    assert matches(condition, DOCUMENT, "handbook") is holds


def test_an_empty_filter_is_none() -> None:
    assert parse("  ") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("colour = red", "no filter field 'colour'"),
        ("meta. = red", "no filter field"),
        ("path", "ends where an operator"),
        ("path =", "ends where a value"),
        ("path like x", "'like' is no filter operator"),
        ("path = = x", "where a value"),
        ("(path = x", "closing parenthesis"),
        ("path = x path = y", "goes on with 'path'"),
        ("date > yesterday", "no date"),
        ("size > big", "no size"),
        ('path = "x', "cannot be read at character"),
        ("not " * 40 + "path = x", "nests deeper"),
        ("1=1; DROP TABLE documents", "no filter field '1'"),
    ],
)
def test_what_cannot_be_read_says_where(text: str, told: str) -> None:
    with pytest.raises(FilterInvalid, match=told.replace("(", r"\(")):
        parse(text)


@given(st.text(alphabet='abc =<>~!()"and or not meta.path.1', max_size=60))
def test_any_text_is_a_filter_or_a_clear_refusal(text: str) -> None:
    try:
        condition = parse(text)
        if condition is not None:
            matches(condition, DOCUMENT, "handbook")
    except FilterInvalid as refusal:
        assert refusal.message
