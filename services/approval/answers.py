"""Whether what a person sends fits what was asked: edited arguments, answers, results, messages. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, assert_never
from urllib.parse import urlsplit

from services.approval.domain import Approval, Question, QuestionType
from services.approval.errors import AnswerInvalid
from services.approval.jsontext import parse_json
from services.chassis.canonical import canonical_json
from services.chassis.errors import FieldViolation

LINE_LIMIT = 4096
TEXT_LIMIT = 65536
MAX_VIOLATIONS = 10
EMAIL = re.compile(r"[^@\s\x00-\x1f]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
PART_KINDS = frozenset({"text", "image", "file"})


def edited_arguments(approval: Approval, text: bytes) -> bytes:
    """Return edited arguments in canonical form, or raise AnswerInvalid when the tool's schema refuses them."""
    what = "the edited arguments are"
    arguments = _parse(what, "edit.arguments_json", text)
    if not isinstance(arguments, dict):
        raise AnswerInvalid(what, [_at("edit.arguments_json", "must be a JSON object")])
    if not approval.parameters:
        raise AnswerInvalid(what, [_at("edit.arguments_json", "cannot be checked: the request came without a schema")])
    violations = list(_schema_violations(approval.parameters, arguments))
    if violations:
        raise AnswerInvalid(what, violations)
    return canonical_json(arguments)


def _schema_violations(parameters: bytes, arguments: Any) -> Iterator[FieldViolation]:
    # Loaded by the first edit; a start does not need them.
    import jsonschema
    import referencing.exceptions
    import referencing.jsonschema

    schema = parse_json(parameters)
    # References that leave the schema are not followed: the library's own registry would fetch them.
    offline: referencing.jsonschema.SchemaRegistry = referencing.Registry()
    try:
        validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        validator.check_schema(schema)
        for count, error in enumerate(validator(schema, registry=offline).iter_errors(arguments)):
            if count == MAX_VIOLATIONS:
                return
            path = ".".join(["args", *map(str, error.absolute_path)])
            yield _at(path, error.message[:500])
    except (jsonschema.SchemaError, referencing.exceptions.Unresolvable) as error:
        yield _at("args", f"cannot be checked: the tool's schema is unusable ({type(error).__name__})")


def answers(questions: Sequence[Question], text: bytes) -> bytes:
    """Return answers in canonical form, or raise AnswerInvalid that names each bad one."""
    what = "the answers are"
    given = _parse(what, "answer.answers_json", text)
    if not isinstance(given, dict):
        raise AnswerInvalid(what, [_at("answer.answers_json", "must be a JSON object by question id")])
    known = {question.question_id: question for question in questions}
    violations = [_at(name, "there is no such question") for name in given if name not in known]
    for name, question in known.items():
        value = given.get(name)
        problem = (
            _problem(question, value) if value is not None else ("must be answered" if question.required else None)
        )
        if problem:
            violations.append(_at(name, problem))
    if violations:
        raise AnswerInvalid(what, violations[:MAX_VIOLATIONS])
    return canonical_json({name: value for name, value in given.items() if value is not None})


def skipped(questions: Sequence[Question]) -> None:
    """Raise AnswerInvalid when one of the questions must be answered, so that all of them cannot be skipped."""
    required = [_at(question.question_id, "must be answered") for question in questions if question.required]
    if required:
        raise AnswerInvalid("skipping is", required)


def _problem(question: Question, value: Any) -> str | None:
    match question.type:
        case QuestionType.TEXT:
            return _text_problem(value, LINE_LIMIT) or ("must be one line" if "\n" in value else None)
        case QuestionType.LONG_TEXT:
            return _text_problem(value, TEXT_LIMIT)
        case QuestionType.NUMBER:
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            return None if number else "must be a number"
        case QuestionType.DATE:
            return None if isinstance(value, str) and _is_day(value) else "must be a date such as 2026-03-31"
        case QuestionType.EMAIL:
            good = isinstance(value, str) and EMAIL.fullmatch(value) and ".." not in value
            return None if good else "must be an e-mail address"
        case QuestionType.URL:
            return None if isinstance(value, str) and _is_web_url(value) else "must be an http or https URL"
        case QuestionType.SINGLE_CHOICE:
            return _choice_problem(question, value)
        case QuestionType.MULTIPLE_CHOICE:
            return _choices_problem(question, value)
    assert_never(question.type)


def _text_problem(value: Any, limit: int) -> str | None:
    if not isinstance(value, str) or not value.strip():
        return "must be text"
    return f"must have at most {limit} characters" if len(value) > limit else None


def _is_day(value: str) -> bool:
    try:
        return bool(DAY.fullmatch(value)) and bool(date.fromisoformat(value))
    except ValueError:
        return False


def _is_web_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and len(value) <= LINE_LIMIT


def _choice_problem(question: Question, value: Any) -> str | None:
    if isinstance(value, str) and value in question.options:
        return None
    if question.allow_other:
        return _text_problem(value, LINE_LIMIT)
    return f"must be one of {', '.join(question.options)}"


def _choices_problem(question: Question, value: Any) -> str | None:
    if not isinstance(value, list) or (question.required and not value):
        return "must be a list of choices"
    if len(value) > len(question.options) + int(question.allow_other):
        return "has more choices than there are"
    if len({str(choice) for choice in value}) != len(value):
        return "names a choice twice"
    return next(filter(None, (_choice_problem(question, choice) for choice in value)), None)


def client_result(text: bytes) -> bytes:
    """Return a client-side tool's result in canonical form: `{"parts": […], "failed": bool}`."""
    what = "the result is"
    result = _parse(what, "client_tool.result_json", text)
    if not isinstance(result, dict) or not isinstance(result.get("parts"), list):
        raise AnswerInvalid(what, [_at("client_tool.result_json", "must be an object with a list 'parts'")])
    if unknown := sorted(set(result) - {"parts", "failed"}):
        raise AnswerInvalid(what, [_at(f"client_tool.{unknown[0]}", "is not known; there are 'parts' and 'failed'")])
    if not isinstance(result.get("failed", False), bool):
        raise AnswerInvalid(what, [_at("client_tool.failed", "must be true or false")])
    _check_parts(what, "client_tool.parts", result["parts"])
    return canonical_json({"parts": result["parts"], "failed": result.get("failed", False)})


def continue_input(text: bytes) -> bytes:
    """Return the parts to continue with in canonical form, or nothing when the run is to end."""
    if not text:
        return b""
    what = "the message is"
    parts = _parse(what, "continue_with.input_json", text)
    if not isinstance(parts, list):
        raise AnswerInvalid(what, [_at("continue_with.input_json", "must be a list of parts")])
    _check_parts(what, "continue_with.parts", parts)
    return canonical_json(parts) if parts else b""


def _check_parts(what: str, field: str, parts: list[Any]) -> None:
    for place, part in enumerate(parts):
        one_kind = isinstance(part, dict) and len(part) == 1 and PART_KINDS.issuperset(part)
        if not one_kind or ("text" in part and not isinstance(part["text"], str)):
            raise AnswerInvalid(what, [_at(f"{field}[{place}]", "must hold one of text, image, file")])


def _parse(what: str, field: str, text: bytes) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise AnswerInvalid(what, [_at(field, f"must be JSON: {error}")]) from error


def _at(field: str, description: str) -> FieldViolation:
    return FieldViolation(field=field, description=description)
