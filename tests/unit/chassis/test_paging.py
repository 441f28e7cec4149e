from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.errors import PageTokenInvalid
from services.chassis.paging import decode_token, encode_token

KEYS = st.lists(st.text() | st.integers() | st.floats(allow_nan=False), max_size=3)


@given(KEYS)
def test_a_token_gives_its_keys_back(keys: list[str | int | float]) -> None:
    assert decode_token("runs", encode_token("runs", *keys)) == tuple(keys)


def test_a_token_of_another_list_is_refused() -> None:
    with pytest.raises(PageTokenInvalid, match="another list"):
        decode_token("approvals", encode_token("runs", 1))


@given(st.text() | st.binary().map(lambda raw: raw.hex()))
def test_damage_is_refused(token: str) -> None:
    with pytest.raises(PageTokenInvalid):
        decode_token("runs", token)


@pytest.mark.parametrize("keys", ["[1,2]", '{"a":1}', "null", "true"])
def test_keys_of_other_types_are_refused(keys: str) -> None:
    import base64

    token = base64.urlsafe_b64encode(f'[1,"runs",{keys}]'.encode()).decode()
    with pytest.raises(PageTokenInvalid):
        decode_token("runs", token)
