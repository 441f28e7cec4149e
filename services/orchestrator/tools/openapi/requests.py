"""Arguments of a call as an HTTP request, written as the operation's parameters say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from services.chassis.canonical import canonical_json
from services.orchestrator.tools.http_client import HttpRequest
from services.orchestrator.tools.openapi.document import BODY, Operation, Parameter, Place

_SEPARATORS = {"spaceDelimited": " ", "pipeDelimited": "|"}
# Headers that belong to the transport or to the operator.
_RESERVED = frozenset(
    {"authorization", "connection", "content-length", "cookie", "host", "proxy-authorization", "transfer-encoding"}
)


class ArgumentUnusable(ValueError):
    """An argument cannot be sent; the message tells the model what to correct."""


def make_request(operation: Operation, base_url: str, arguments: Mapping[str, Any]) -> HttpRequest:
    """Return the request without credentials. Raises ArgumentUnusable."""
    path = operation.path
    query: list[tuple[str, str]] = []
    headers = {"Accept": "application/json, text/*;q=0.9, */*;q=0.5"}
    for parameter in operation.parameters:
        if parameter.argument not in arguments:
            continue
        value = arguments[parameter.argument]
        match parameter.place:
            case Place.PATH:
                path = path.replace(f"{{{parameter.name}}}", _segment(parameter, value))
            case Place.QUERY:
                query += _pairs(parameter, value)
            case Place.HEADER:
                headers[parameter.name] = _header(parameter, value)
    body = b""
    if operation.body and BODY in arguments:
        headers["Content-Type"] = operation.body
        body = _body(operation.body, arguments[BODY])
    url = base_url.rstrip("/") + path + (f"?{urlencode(query, quote_via=quote)}" if query else "")
    return HttpRequest(method=operation.method, url=url, headers=headers, body=body)


def text_of(value: Any) -> str:
    """Return a value as it stands in a URL: text as it is, truth values and null as JSON has them."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _segment(parameter: Parameter, value: Any) -> str:
    items = value if isinstance(value, list) else [value]
    text = ",".join(quote(text_of(item), safe="") for item in items)
    if not text or text in (".", ".."):
        raise ArgumentUnusable(f"argument '{parameter.argument}': '{text}' cannot stand in a path")
    return text


def _pairs(parameter: Parameter, value: Any) -> list[tuple[str, str]]:
    name = parameter.name
    if isinstance(value, dict):
        entries = [(key, text_of(inner)) for key, inner in value.items()]
        if parameter.style == "deepObject":
            return [(f"{name}[{key}]", inner) for key, inner in entries]
        return entries if parameter.explode else [(name, ",".join(part for entry in entries for part in entry))]
    if isinstance(value, list):
        texts = [text_of(item) for item in value]
        if parameter.explode and parameter.style == "form":
            return [(name, text) for text in texts]
        return [(name, _SEPARATORS.get(parameter.style, ",").join(texts))]
    return [(name, text_of(value))]


def _header(parameter: Parameter, value: Any) -> str:
    if parameter.name.lower() in _RESERVED:
        raise ArgumentUnusable(f"argument '{parameter.argument}': this header is not yours to set; leave it out")
    text = ",".join(map(text_of, value)) if isinstance(value, list) else text_of(value)
    if not text.isprintable():
        raise ArgumentUnusable(f"argument '{parameter.argument}': a header holds one line of printable text")
    return text


def _body(kind: str, value: Any) -> bytes:
    if kind == "text/plain":
        return text_of(value).encode()
    if kind == "application/x-www-form-urlencoded":
        if not isinstance(value, dict):
            raise ArgumentUnusable("argument 'body': a form is an object of names and values")
        pairs = [
            (key, item) for key, inner in value.items() for item in (inner if isinstance(inner, list) else [inner])
        ]
        return urlencode([(key, text_of(item)) for key, item in pairs]).encode()
    return canonical_json(value)
