"""Questions of an agent, put to whoever sits at the terminal."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.markup import escape

from services.cli.ask import decide
from services.cli.gateway import Gateway
from services.cli.show import plain

TYPE_PREFIX = "QUESTION_TYPE_"


class AnswerInvalid(ValueError):
    """What was typed is no answer; the message says what would be."""


class Answerer:
    """Asks one question after the other; an empty line skips one that need not be answered."""

    def __init__(self, gateway: Gateway, console: Console) -> None:
        self._gateway = gateway
        self._console = console

    def __call__(self, asked: dict[str, Any]) -> None:
        """Read the answers and send them; the first to answer wins, whoever it is."""
        questions = asked["questions_json"]
        self._console.print()
        if not sys.stdin.isatty():
            for question in questions:
                self._console.print(f"[bold yellow]{escape(plain(question['text']))}[/]")
            self._console.print(f"  answer on the page, or POST /v1/approvals/{asked['approval_id']}/decision")
            return
        answers = {question["question_id"]: self._ask(question) for question in questions}
        given = {question_id: answer for question_id, answer in answers.items() if answer is not None}
        decision = {"decision": "answer", "answers": given} if given else {"decision": "answer", "skipped": True}
        decide(self._gateway, self._console, asked["approval_id"], decision)

    def _ask(self, question: dict[str, Any]) -> Any:
        required = bool(question.get("required"))
        self._console.print(
            f"[bold yellow]{escape(plain(question['text']))}[/]{'' if required else ' [dim](or skip)[/]'}"
        )
        for number, option in enumerate(question.get("options", ()), start=1):
            self._console.print(f"  [bold]{number}[/] {escape(plain(option))}", highlight=False)
        while True:
            self._console.print("  > ", end="")
            line = sys.stdin.readline()
            typed = line.strip()
            if not typed and (not required or not line):
                return None
            try:
                return answer_of(question, typed)
            except AnswerInvalid as error:
                self._console.print(f"  [red]{escape(str(error))}[/]", highlight=False)


def answer_of(question: dict[str, Any], typed: str) -> Any:
    """Return what was typed as the question takes it, or raise AnswerInvalid."""
    match str(question["type"]).removeprefix(TYPE_PREFIX):
        case "NUMBER":
            try:
                number = float(typed.replace(",", "."))
            except ValueError:
                raise AnswerInvalid(f"'{typed}' is no number") from None
            return int(number) if number.is_integer() else number
        case "SINGLE_CHOICE":
            return _option(question, typed)
        case "MULTIPLE_CHOICE":
            return [_option(question, part.strip()) for part in typed.split(",") if part.strip()]
        case _:
            if not typed:
                raise AnswerInvalid("this needs an answer")
            return typed


def _option(question: dict[str, Any], typed: str) -> str:
    options: list[str] = question.get("options", [])
    if typed.isdigit() and 0 < int(typed) <= len(options):
        return options[int(typed) - 1]
    if typed in options or (typed and question.get("allow_other")):
        return typed
    raise AnswerInvalid(f"'{typed}' is none of them; type a number from 1 to {len(options)}")
