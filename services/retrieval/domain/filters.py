"""The small filter language over documents. It is read here and never reaches a store as text.

    path ~ "policies/*" and (type = pdf or meta.department = HR) and not date < 2026-01-01

Fields: source, path, title, type (media type, or the extension of the path), date (of ingest), size (bytes), meta.KEY.
Operators: = != < <= > >= and ~ (glob). Words join by and, or, not and parentheses; quotes hold spaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TypeVar

from services.retrieval.domain.errors import FilterInvalid
from services.retrieval.domain.library import Document

MAX_DEPTH = 16
FIELDS = ("source", "path", "title", "type", "date", "size")
OPERATORS = ("!=", "<=", ">=", "=", "<", ">", "~")

_TOKEN = re.compile(r"""\s*(?:(?P<op>!=|<=|>=|[=<>~()])|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<word>[^\s"=<>~()!]+))""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """`field operator value`."""

    field: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """The part does not hold."""

    part: Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class All:
    """Every part holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """At least one part holds."""

    parts: tuple[Condition, ...]


Condition = Compare | Not | All | AnyOf


def parse(text: str) -> Condition | None:
    """Return the condition, None for an empty text, or raise FilterInvalid saying where it went wrong."""
    tokens = _tokens(text)
    if not tokens:
        return None
    reader = _Reader(tokens)
    condition = reader.either(0)
    if reader.rest():
        raise FilterInvalid(f"the filter goes on with '{reader.rest()}' where and, or or its end was expected")
    return condition


def matches(condition: Condition, document: Document, source_name: str) -> bool:
    """Return whether the document satisfies the condition. A field it does not have equals nothing."""
    match condition:
        case Not(part=part):
            return not matches(part, document, source_name)
        case All(parts=parts):
            return all(matches(part, document, source_name) for part in parts)
        case AnyOf(parts=parts):
            return any(matches(part, document, source_name) for part in parts)
        case Compare():
            return _compare(condition, document, source_name)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    quoted: bool

    def is_word(self, word: str) -> bool:
        return not self.quoted and self.text.lower() == word


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found:
            raise FilterInvalid(f"the filter cannot be read at character {at + 1}: '{text[at : at + 20]}'")
        quoted = found["quoted"]
        if quoted is not None:
            tokens.append(_Token(re.sub(r"\\(.)", r"\1", quoted), quoted=True))
        else:
            tokens.append(_Token(found["op"] or found["word"], quoted=False))
        at = found.end()
    return tokens


class _Reader:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def rest(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def either(self, depth: int) -> Condition:
        parts = [self._both(depth)]
        while self._take("or"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else AnyOf(parts=tuple(parts))

    def _both(self, depth: int) -> Condition:
        parts = [self._one(depth)]
        while self._take("and"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else All(parts=tuple(parts))

    def _one(self, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            raise FilterInvalid(f"the filter nests deeper than {MAX_DEPTH} levels")
        if self._take("not"):
            return Not(part=self._one(depth + 1))
        if self._take("("):
            inner = self.either(depth + 1)
            if not self._take(")"):
                raise FilterInvalid("the filter lacks a closing parenthesis")
            return inner
        return self._comparison()

    def _comparison(self) -> Compare:
        field, operator, value = self._next("a field"), self._next("an operator"), self._next("a value")
        name = field.text if field.text.startswith("meta.") else field.text.lower()
        if name not in FIELDS and not (name.startswith("meta.") and len(name) > len("meta.")):
            raise FilterInvalid(f"there is no filter field '{field.text}'; use {', '.join(FIELDS)} or meta.KEY")
        if operator.quoted or operator.text not in OPERATORS:
            raise FilterInvalid(f"'{operator.text}' is no filter operator; use {' '.join(OPERATORS)}")
        if not value.quoted and value.text in ("(", ")", *OPERATORS):
            raise FilterInvalid(f"the filter has '{value.text}' where a value for '{name}' was expected; quote it")
        if name == "date":
            _date(value.text)
        if name == "size":
            _number(value.text)
        return Compare(field=name, operator=operator.text, value=value.text)

    def _take(self, word: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at].is_word(word):
            self._at += 1
            return True
        return False

    def _next(self, what: str) -> _Token:
        if self._at >= len(self._tokens):
            raise FilterInvalid(f"the filter ends where {what} was expected")
        self._at += 1
        return self._tokens[self._at - 1]


def _compare(condition: Compare, document: Document, source_name: str) -> bool:
    if condition.field == "date":
        return _ordered(condition.operator, document.ingested_at, _date(condition.value))
    if condition.field == "size":
        return _ordered(condition.operator, document.size, _number(condition.value))
    values = _texts(condition.field, document, source_name)
    if condition.operator == "!=":
        return all(value.casefold() != condition.value.casefold() for value in values)
    return any(_text_holds(condition.operator, value, condition.value) for value in values)


def _texts(field: str, document: Document, source_name: str) -> tuple[str, ...]:
    if field.startswith("meta."):
        value = document.metadata.get(field.removeprefix("meta."))
        return () if value is None else (value,)
    match field:
        case "source":
            return (source_name, document.source_id)
        case "path":
            return (document.path,)
        case "title":
            return (document.title,)
        case _:
            return (document.media_type, document.path.rpartition(".")[2])


def _text_holds(operator: str, value: str, wanted: str) -> bool:
    if operator == "~":
        return fnmatchcase(value.casefold(), wanted.casefold())
    return _ordered(operator, value.casefold(), wanted.casefold())


_ORDER: dict[str, Callable[[int], bool]] = {
    "=": lambda sign: sign == 0,
    "!=": lambda sign: sign != 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}


T = TypeVar("T", str, float, datetime)


def _ordered(operator: str, value: T, wanted: T) -> bool:
    if operator == "~":
        raise FilterInvalid("the operator ~ compares text, not dates or sizes")
    return _ORDER[operator]((value > wanted) - (value < wanted))


def _date(text: str) -> datetime:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise FilterInvalid(f"'{text}' is no date; write it as 2026-01-31") from None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise FilterInvalid(f"'{text}' is no size in bytes") from None
