from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.canonical import canonical_json, digest

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_the_form_reads_back_as_the_same_value(value: object) -> None:
    assert json.loads(canonical_json(value)) == value


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    assert canonical_json(value) == canonical_json(dict(reversed(value.items())))


def test_large_integers_and_chinese_survive() -> None:
    assert canonical_json({"b": 2**70, "a": "报销"}) == '{"a":"报销","b":1180591620717411303424}'.encode()


def test_a_lone_surrogate_has_a_form() -> None:
    assert canonical_json("\ud800") == b'"\\ud800"'


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_json_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(value)


def test_digest_is_sha256() -> None:
    assert digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
