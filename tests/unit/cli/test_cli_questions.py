"""Questions at the terminal: what may be typed, what is sent, and what happens where nobody sits."""

from __future__ import annotations

import io
import json
from typing import Any

import httpx
import pytest
from rich.console import Console

from services.cli.ask import ask
from services.cli.gateway import Gateway
from services.cli.questions import Answerer, AnswerInvalid, answer_of

QUESTIONS = [
    {"question_id": "days", "text": "How long?", "type": "QUESTION_TYPE_NUMBER", "required": True},
    {"question_id": "why", "text": "What for?", "type": "QUESTION_TYPE_TEXT"},
]
ASKED = {"approval_id": "a1", "questions_json": QUESTIONS}


def asked_at(monkeypatch: pytest.MonkeyPatch, typed: str, *, terminal: bool = True) -> tuple[list[dict[str, Any]], str]:
    """Return the decisions that were sent for what was typed, and what was shown."""
    sent: list[dict[str, Any]] = []

    def decide(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        approval = {"state": "APPROVAL_STATE_ANSWERED", "tool": "ask_user"}
        return httpx.Response(200, json={"decided_now": True, "approval": approval})

    stdin = io.StringIO(typed)
    monkeypatch.setattr(stdin, "isatty", lambda: terminal)
    monkeypatch.setattr("sys.stdin", stdin)
    shown = Console(file=io.StringIO(), width=120)
    Answerer(Gateway("http://gateway", transport=httpx.MockTransport(decide)), shown)(ASKED)
    assert isinstance(shown.file, io.StringIO)
    return sent, shown.file.getvalue()


def test_answers_are_sent_by_question_and_what_need_not_be_answered_may_be_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent, _ = asked_at(monkeypatch, "three\n3\n\n")
    assert sent == [{"decision": "answer", "answers": {"days": 3}}]


def test_a_required_question_is_asked_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, shown = asked_at(monkeypatch, "\n2,5\nfun\n")
    assert sent == [{"decision": "answer", "answers": {"days": 2.5, "why": "fun"}}]
    assert "'' is no number" in shown


def test_a_closed_terminal_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, _ = asked_at(monkeypatch, "")
    assert sent == [{"decision": "answer", "skipped": True}]


def test_where_nobody_sits_the_questions_and_the_way_to_answer_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, shown = asked_at(monkeypatch, "", terminal=False)
    assert sent == []
    assert "How long?" in shown
    assert "/v1/approvals/a1/decision" in shown


CHOICE = {"type": "QUESTION_TYPE_SINGLE_CHOICE", "options": ["red", "blue"]}


@pytest.mark.parametrize(
    ("question", "typed", "answer"),
    [
        (CHOICE, "2", "blue"),
        (CHOICE, "red", "red"),
        (CHOICE | {"allow_other": True}, "green", "green"),
        (CHOICE | {"type": "QUESTION_TYPE_MULTIPLE_CHOICE"}, "1, blue", ["red", "blue"]),
        ({"type": "QUESTION_TYPE_DATE"}, "2026-05-01", "2026-05-01"),
    ],
)
def test_what_is_typed_becomes_what_the_question_takes(question: dict[str, Any], typed: str, answer: Any) -> None:
    assert answer_of(question, typed) == answer


@pytest.mark.parametrize("typed", ["3", "0", "green", ""])
def test_what_is_no_option_is_refused(typed: str) -> None:
    with pytest.raises(AnswerInvalid, match="a number from 1 to 2"):
        answer_of(CHOICE, typed)


def test_questions_of_a_run_are_put_to_whoever_answers() -> None:
    body = [
        {"run_id": "r1", "sequence": 1, "questions_asked": ASKED},
        {"run_id": "r1", "sequence": 2, "run_completed": {"text": "Done.", "citations": []}},
    ]
    lines = "".join(f"id: {event['sequence']}\nevent: e\ndata: {json.dumps(event)}\n\n" for event in body)
    gateway = Gateway("http://gateway", transport=httpx.MockTransport(lambda _: httpx.Response(200, content=lines)))
    put: list[str] = []
    code = ask(gateway, "q", Console(file=io.StringIO()), None, lambda asked: put.append(asked["approval_id"]))
    assert (code, put) == (0, ["a1"])
