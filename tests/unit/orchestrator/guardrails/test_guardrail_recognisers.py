"""Personal data is found by its form and its check digits, and a stream is read as the whole text would be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.orchestrator.guardrails.recognisers import Kind, iban, luhn, resident_id
from services.orchestrator.guardrails.redaction import StreamRedactor, redact, redact_json, told

ALL = tuple(Kind)
# Fragments that make and break matches when they meet.
FRAGMENTS = (
    "ann.b+x@example.co.uk", "ann@", "example.com", "@", ".", "-", " ", "  ", "\n", "(", ")", "+", "/", "，", "电话",
    "+49 151 2345678", "(415) 555-0132", "13800138000", "0151 23456789", "4111 1111 1111 1111", "4111-1111",
    "378282246310005", "DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432", "DE89", "3704", "UND", "x", "X", "7",
    "11010519491231002X", "110105194912310021", "2026-01-02", "1,234.50", "word", "A1", "12 34 56 78 90 12 34",
)  # fmt: skip


def hidden(text: str) -> str:
    return redact(text, ALL, Counter())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("write to ann.b+x@example.co.uk.", "write to [e-mail]."),
        ("邮箱a@b.cn！", "邮箱[e-mail]！"),
        ("+49 151 2345678 or (415) 555-0132", "[phone] or [phone]"),
        ("电话13800138000。", "电话[phone]。"),
        ("4111 1111 1111 1111 / 5500-0000-0000-0004 / 378282246310005", "[card] / [card] / [card]"),
        ("DE89 3704 0044 0532 0130 00 UND MEHR", "[IBAN] UND MEHR"),
        ("GB82WEST12345698765432", "[IBAN]"),
        ("身份证11010519491231002X", "身份证[resident id]"),
    ],
)
def test_what_is_personal_is_hidden(text: str, expected: str) -> None:
    assert hidden(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",  # wrong check digit
        "DE88 3704 0044 0532 0130 00",
        "110105194912310021",
        "11010519491331002X",  # no such month
        "order 12345678 of 2026-01-02, 1,234,567.89 EUR, version 1.2.3.4",
        "see [1] and [2, 3], pages 12-14, at 10.30",
        "a@b, user@localhost, @ann, ann@@example.com",
        "abc4111111111111111def",
        "ISO 9001:2015, RFC 9457, room 415-555",
    ],
)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert hidden(text) == text


def test_checks_are_the_published_ones() -> None:
    assert luhn("4012 8888 8888 1881")
    assert not luhn("4012 8888 8888 1882")
    assert iban("FR1420041010050500013M02606")
    assert not iban("FR1420041010050500013M02607")
    assert resident_id("440524188001010014")
    assert not resident_id("440524188001010015")


def test_only_the_chosen_kinds_are_hidden() -> None:
    text = "ann@example.com 4111111111111111"
    assert redact(text, (Kind.CARD,), Counter()) == "ann@example.com [card]"


def test_what_was_hidden_is_told_by_kind_and_never_itself() -> None:
    count: Counter[Kind] = Counter()
    redact("a@b.cn, c@d.cn, 4111111111111111", ALL, count)
    assert told(count) == ("[card] ×1", "[e-mail] ×2")


def test_numbers_in_json_are_hidden_too_and_it_stays_json() -> None:
    value = b'{"card":4111111111111111,"n":5,"who":["ann@example.com"],"yes":true}'
    assert redact_json(value, ALL, Counter()) == b'{"card":"[card]","n":5,"who":["[e-mail]"],"yes":true}'


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14), st.data())
def test_pieces_give_what_the_whole_gives(fragments: list[str], data: st.DataObject) -> None:
    text = "".join(fragments)
    stream = StreamRedactor(ALL)
    shown, position = "", 0
    while position < len(text):
        length = data.draw(st.integers(1, 9))
        shown += stream.feed(text[position : position + length])
        position += length
    assert shown + stream.end() == hidden(text)


def test_a_stream_holds_back_little_and_never_what_cannot_become_a_match() -> None:
    stream = StreamRedactor(ALL)
    assert stream.feed("Good morning, ") == "Good morning, "
    assert stream.feed("ann.lee") == ""
    assert stream.feed("@example.com") == ""
    assert stream.feed(" wrote") == "[e-mail] "
    assert stream.feed(" " + "x" * 5000).startswith("wrote " + "x" * 4000)
    assert stream.end().endswith("x")
