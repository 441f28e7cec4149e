"""A server's questions (elicitation) as questions to the user, and the user's answers as the server wants them.

Pure: schemas and answers are plain JSON here, whatever protocol version carries them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from services.orchestrator.mcp.naming import visible

MOST_QUESTIONS = 10
MOST_OPTIONS = 50
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FORMATS = {"email": "email", "uri": "url", "date": "date"}
YES, NO = "Yes", "No"
OPENED = "I have opened it"
AGREED = "Go on"


class Unaskable(Exception):
    """What the server wants to know cannot be asked; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a server asks at once: requests by its own keys.

    Each is `{"message", "requestedSchema"}` or `{"message", "url"}`.
    """

    server: str
    requests: Mapping[str, Mapping[str, Any]]


def questions_of(asked: Asked) -> list[dict[str, Any]]:
    """Return the questions in the form of ask_user's, or raise Unaskable."""
    found = [_question(asked, place) for place in _places(asked)]
    if not found:
        raise Unaskable(f"server '{asked.server}' asks nothing")
    if len(found) > MOST_QUESTIONS:
        raise Unaskable(f"server '{asked.server}' asks {len(found)} questions at once, {MOST_QUESTIONS} are the most")
    return found


def replies_to(asked: Asked, answers: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the reply to each request: what was answered; `decline` when the user skipped all of it or said no.

    `answers` is None when nobody answered, which is `cancel`.
    """
    if answers is None:
        return {key: {"action": "cancel"} for key in asked.requests}
    replies: dict[str, dict[str, Any]] = {}
    given: dict[str, dict[str, Any]] = {}
    for place in _places(asked):
        value = answers.get(place.question_id)
        if place.schema is None:
            agreed = value in (OPENED, AGREED)
            replies[place.key] = {"action": "accept" if agreed else "decline"}
            if agreed and "url" not in asked.requests[place.key]:
                replies[place.key]["content"] = {}
        elif value is not None:
            given.setdefault(place.key, {})[place.field] = _value(place.schema, value)
    for key, request in asked.requests.items():
        if key in replies:
            continue
        told = list(given.get(key, ()))  # what a server requires may be nothing that a mapping can look up
        missing = [field for field in _list(_schema(request).get("required")) if field not in told]
        declined = missing or (not given.get(key) and _schema(request).get("properties"))
        replies[key] = {"action": "decline"} if declined else {"action": "accept", "content": given.get(key, {})}
    return replies


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """One question: its id, the request and field it fills, and the field's schema (None: open a link)."""

    question_id: str
    key: str
    field: str
    schema: Mapping[str, Any] | None


def _places(asked: Asked) -> list[_Place]:
    places: list[_Place] = []
    taken: set[str] = set()
    for key, request in asked.requests.items():
        fields: Mapping[str, Any] = {"": None} if "url" in request else _mapping(_schema(request).get("properties"))
        if not fields:  # a message to be agreed to, without any field
            fields = {"": None}
        for field, schema in fields.items():
            wanted = field if len(asked.requests) == 1 else f"{key}_{field}"
            name = wanted if _ID.fullmatch(wanted) and wanted not in taken else f"question_{len(places) + 1}"
            taken.add(name)
            places.append(_Place(question_id=name, key=key, field=field, schema=schema))
    return places


def _schema(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(request.get("requestedSchema"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _question(asked: Asked, place: _Place) -> dict[str, Any]:
    request = asked.requests[place.key]
    message = visible(str(request.get("message", "")), 1500)
    heading = f"The tool server '{asked.server}' asks: {message}"
    if place.schema is None and "url" in request:
        return _choice(place, f"{heading}\nOpen this page yourself: {_link(str(request['url']))}", [OPENED, NO])
    if place.schema is None:
        return _choice(place, heading, [AGREED, NO])
    if not isinstance(place.schema, Mapping):
        raise Unaskable(f"server '{asked.server}' asks for '{place.field}' in a form that is not known")
    label = visible(str(place.schema.get("title") or place.field), 200)
    detail = visible(str(place.schema.get("description") or ""), 500)
    text = "\n".join(part for part in (heading, f"{label}: {detail}" if detail else label) if part)
    question = {"question_id": place.question_id, "text": text, **_kind(asked, place)}
    question["required"] = False  # people may always decline
    return question


def _kind(asked: Asked, place: _Place) -> dict[str, Any]:
    schema = place.schema or {}
    if options := _options(schema):
        return {"type": "single_choice", "options": list(options)}
    kind = schema.get("type")
    match kind:
        case "boolean":
            return {"type": "single_choice", "options": [YES, NO]}
        case "integer" | "number":
            return {"type": "number"}
        case "array" if options := _options(_mapping(schema.get("items"))):
            return {"type": "multiple_choice", "options": list(options)}
        case "string":
            return {"type": _FORMATS.get(str(schema.get("format", "")), "text")}
    raise Unaskable(f"server '{asked.server}' asks for '{place.field}' of type {kind!r}, which cannot be asked")


def _options(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices as people read them, each with its value."""
    titled = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(titled, list):
        chosen = [each for each in titled if isinstance(each, Mapping) and "const" in each]
        pairs = [(each.get("title") or each["const"], each["const"]) for each in chosen]
    else:
        values = _list(schema.get("enum"))
        names = _list(schema.get("enumNames")) or values
        pairs = list(zip(names, values, strict=False))
    options = {visible(str(name), 500) or str(value): value for name, value in pairs}
    if len(options) > MOST_OPTIONS:
        raise Unaskable(f"there are {len(options)} choices, {MOST_OPTIONS} are the most")
    return options


def _value(schema: Mapping[str, Any], answer: Any) -> Any:
    """Return an answer as the schema's type."""
    if options := _options(schema):
        return options.get(answer, answer)
    match schema.get("type"):
        case "boolean":
            return answer == YES
        case "integer":
            return int(answer)
        case "array":
            options = _options(_mapping(schema.get("items")))
            return [options.get(each, each) for each in answer]
    return answer


def _choice(place: _Place, text: str, options: list[str]) -> dict[str, Any]:
    return {
        "question_id": place.question_id,
        "text": text,
        "type": "single_choice",
        "options": options,
        "required": False,
    }


def _link(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise Unaskable("the server wants a page opened whose address is no plain http(s) URL")
    return visible(url, 1000)
