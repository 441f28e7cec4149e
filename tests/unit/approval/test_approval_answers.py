"""Answers, edited arguments and results: what fits, and what is told about what does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.approval import answers
from services.approval.domain import Question, QuestionType
from services.approval.errors import AnswerInvalid
from services.approval.jsontext import canonical, parse_json
from tests.support.approvals import approval


def question(kind: QuestionType, **fields: Any) -> Question:
    return Question(**{"question_id": "q", "text": "?", "type": kind, "required": True, **fields})


GOOD = [
    (question(QuestionType.TEXT), "one line"),
    (question(QuestionType.LONG_TEXT), "two\nlines"),
    (question(QuestionType.NUMBER), 3),
    (question(QuestionType.NUMBER), -2.5),
    (question(QuestionType.DATE), "2028-02-29"),
    (question(QuestionType.EMAIL), "ann.o+tag@mail.acme.example"),
    (question(QuestionType.URL), "https://acme.example/a?b=c"),
    (question(QuestionType.SINGLE_CHOICE, options=("red", "blue")), "red"),
    (question(QuestionType.SINGLE_CHOICE, options=("red",), allow_other=True), "mauve"),
    (question(QuestionType.MULTIPLE_CHOICE, options=("red", "blue")), ["blue", "red"]),
    (question(QuestionType.MULTIPLE_CHOICE, options=("red",), allow_other=True), ["red", "mauve"]),
    (question(QuestionType.MULTIPLE_CHOICE, options=("red",), required=False), []),
    (question(QuestionType.TEXT, required=False), None),
]
BAD = [
    (question(QuestionType.TEXT), "two\nlines"),
    (question(QuestionType.TEXT), "  "),
    (question(QuestionType.TEXT), 5),
    (question(QuestionType.TEXT), None),
    (question(QuestionType.TEXT), "x" * 5000),
    (question(QuestionType.LONG_TEXT), "x" * 70000),
    (question(QuestionType.NUMBER), "3"),
    (question(QuestionType.NUMBER), True),
    (question(QuestionType.DATE), "2027-02-29"),
    (question(QuestionType.DATE), "29.2.2028"),
    (question(QuestionType.DATE), "20280229"),
    (question(QuestionType.EMAIL), "ann"),
    (question(QuestionType.EMAIL), "ann@a..example"),
    (question(QuestionType.EMAIL), "a b@acme.example"),
    (question(QuestionType.URL), "javascript:alert(1)"),
    (question(QuestionType.URL), "https://"),
    (question(QuestionType.URL), "http://[::1"),
    (question(QuestionType.SINGLE_CHOICE, options=("red", "blue")), "mauve"),
    (question(QuestionType.SINGLE_CHOICE, options=("red", "blue")), ["red"]),
    (question(QuestionType.MULTIPLE_CHOICE, options=("red", "blue")), "red"),
    (question(QuestionType.MULTIPLE_CHOICE, options=("red", "blue")), ["red", "red"]),
    (question(QuestionType.MULTIPLE_CHOICE, options=("red", "blue")), ["red", "mauve"]),
    (question(QuestionType.MULTIPLE_CHOICE, options=("red",)), []),
    (question(QuestionType.MULTIPLE_CHOICE, options=("red",)), [{"red": 1}]),
]


@pytest.mark.parametrize(("asked", "value"), GOOD)
def test_a_fitting_answer_is_taken(asked: Question, value: Any) -> None:
    given = {"q": value} if value is not None else {}
    assert json.loads(answers.answers([asked], json.dumps(given).encode())) == given


@pytest.mark.parametrize(("asked", "value"), BAD)
def test_an_answer_of_the_wrong_type_names_its_question(asked: Question, value: Any) -> None:
    with pytest.raises(AnswerInvalid) as caught:
        answers.answers([asked], json.dumps({"q": value}).encode())
    assert [violation.field for violation in caught.value.violations] == ["q"]


@pytest.mark.parametrize("text", [b"", b"[]", b"nonsense", b'{"q":1,"q":2}', b'{"q":NaN}', b'{"q":1e999}', b"\xff"])
def test_answers_that_are_no_object_are_refused(text: bytes) -> None:
    with pytest.raises(AnswerInvalid):
        answers.answers([question(QuestionType.NUMBER)], text)


def test_an_answer_to_an_unknown_question_is_refused() -> None:
    with pytest.raises(AnswerInvalid) as caught:
        answers.answers([question(QuestionType.NUMBER)], b'{"q":1,"other":2}')
    assert caught.value.violations[0].field == "other"


def test_skipping_is_refused_when_a_question_must_be_answered() -> None:
    answers.skipped([question(QuestionType.TEXT, required=False)])
    with pytest.raises(AnswerInvalid):
        answers.skipped([question(QuestionType.TEXT, required=True)])


def test_edited_arguments_become_canonical() -> None:
    assert answers.edited_arguments(approval(), b'{"to": "y",\n"copies": 2}') == b'{"copies":2,"to":"y"}'


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (b'{"copies":2}', "args"),
        (b'{"to":"y","copies":"two"}', "args.copies"),
        (b"[]", "edit.arguments_json"),
        (b"{", "edit.arguments_json"),
    ],
)
def test_edited_arguments_that_the_schema_refuses_name_the_place(text: bytes, field: str) -> None:
    with pytest.raises(AnswerInvalid) as caught:
        answers.edited_arguments(approval(), text)
    assert caught.value.violations[0].field == field


@pytest.mark.parametrize(
    "schema",
    [
        b"",
        b'{"type":"nonsense"}',
        b'{"$ref":"#/$defs/missing"}',
        b'{"$ref":"http://127.0.0.1:1/schema.json"}',
    ],
)
def test_without_a_usable_schema_nothing_can_be_edited(schema: bytes) -> None:
    with pytest.raises(AnswerInvalid, match="cannot be checked"):
        answers.edited_arguments(approval(parameters=schema), b'{"to":"y"}')


def test_a_schema_is_never_fetched_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[object] = []
    monkeypatch.setattr("urllib.request.urlopen", lambda *arguments, **_: fetched.append(arguments))
    with pytest.raises(AnswerInvalid):
        answers.edited_arguments(approval(parameters=b'{"$ref":"http://127.0.0.1:1/schema.json"}'), b'{"to":"y"}')
    assert fetched == []


def test_a_schema_with_references_inside_itself_is_followed() -> None:
    schema = (
        b'{"$defs":{"name":{"type":"string"}},"properties":{"to":{"anyOf":[{"$ref":"#/$defs/name"},{"type":"null"}]}}}'
    )
    assert answers.edited_arguments(approval(parameters=schema), b'{"to":null}') == b'{"to":null}'
    with pytest.raises(AnswerInvalid):
        answers.edited_arguments(approval(parameters=schema), b'{"to":5}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"parts":[{"text":"done"}]}', b'{"failed":false,"parts":[{"text":"done"}]}'),
        (b'{"failed":true,"parts":[]}', b'{"failed":true,"parts":[]}'),
    ],
)
def test_a_client_tools_result_becomes_canonical(text: bytes, expected: bytes) -> None:
    assert answers.client_result(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b'{"parts":"done"}',
        b'{"parts":[{"text":1}]}',
        b'{"parts":[{"sound":"x"}]}',
        b'{"parts":[{"text":"a","image":{}}]}',
        b'{"parts":[],"failed":"no"}',
        b'{"parts":[],"approve":true}',
        b'{"approve":{}}',
    ],
)
def test_a_client_tools_result_of_another_form_is_refused(text: bytes) -> None:
    with pytest.raises(AnswerInvalid):
        answers.client_result(text)


def test_continuing_takes_parts_or_nothing() -> None:
    assert answers.continue_input(b"") == b""
    assert answers.continue_input(b"[]") == b""
    assert answers.continue_input(b'[{"text": "go on"}]') == b'[{"text":"go on"}]'
    with pytest.raises(AnswerInvalid):
        answers.continue_input(b'{"text":"go on"}')


def test_json_keeps_integers_of_any_size() -> None:
    assert canonical(b'{"n": 123456789012345678901234567890}') == b'{"n":123456789012345678901234567890}'


def test_json_nested_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="deep"):
        parse_json(b"[" * 100_000)
