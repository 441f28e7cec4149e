"""Terms of texts and questions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.retrieval.tokens import MAX_TERM, bigrams, index_text, is_cjk, query_terms, terms, units


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Reimbursements are PAID", ["reimburs", "are", "paid"]),
        ("差旅费", ["差旅", "旅费"]),
        ("第3天", ["第", "3", "天"]),
        ("EUR 1,200.50 net", ["eur", "1,200.50", "net"]),
        ("Café ＡＢＣ", ["cafe", "abc"]),
        ("readTimeout HTTPServer", ["read", "timeout", "http", "server"]),
        ("использование", ["использование"]),
        ("", []),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def test_questions_lose_the_words_that_only_ask() -> None:
    assert query_terms("What is the mileage rate for cars?") == ["mileag", "rate", "car"]
    assert query_terms("请问住宿费的标准是多少?") == ["住宿", "宿费", "标准"]


def test_a_question_of_function_words_alone_keeps_them() -> None:
    assert query_terms("to be or not to be") == ["to", "be", "or", "not"]


def test_a_word_that_holds_a_function_character_stays_whole() -> None:
    assert "有效" in query_terms("护照的有效期是几年")


def test_a_chinese_character_is_covered_by_either_bigram_around_it() -> None:
    assert units("去苏州") == [("去苏", "苏州"), ("苏州",)]


def test_language_is_told_by_its_script() -> None:
    assert is_cjk("VPN 登录失败怎么办")
    assert not is_cjk("How do I reach 上海 by train")


@given(st.text())
def test_terms_never_hold_spaces_and_stay_short(text: str) -> None:
    for term in terms(text):
        assert 0 < len(term) <= MAX_TERM
        assert term.split() == [term]


@given(st.text())
def test_the_index_column_splits_into_the_terms(text: str) -> None:
    assert index_text(text).split() == terms(text)


@given(st.text(min_size=2))
def test_a_text_shares_every_bigram_with_itself_whatever_its_case(text: str) -> None:
    assert bigrams(text) == bigrams(text)
