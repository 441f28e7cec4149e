"""An OpenAPI document (3.0 or 3.1) as operations with one JSON Schema of arguments each.

References within the document are followed, others are not: nothing is fetched beside the document itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import yaml

from services.chassis.canonical import canonical_json
from services.orchestrator.checks import check_schema
from services.orchestrator.mcp.naming import clean_schema, visible
from services.orchestrator.tools.openapi.schemas import NotTranslatable, Schemas, at

METHODS = ("get", "head", "put", "post", "patch", "delete", "options")
BODY = "body"
SCHEMA_BYTES = 60_000
DESCRIPTION = 1_500
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_.-]")
_BODIES = ("application/json", "application/x-www-form-urlencoded", "text/plain")


class DocumentInvalid(ValueError):
    """The document is no OpenAPI that can be used; the message says why."""


class Place(Enum):
    """Where a parameter stands."""

    PATH = "path"
    QUERY = "query"
    HEADER = "header"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter: its name on the wire, the name of the argument, and how lists and objects are written."""

    name: str
    argument: str
    place: Place
    style: str
    explode: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. `path` is a template; `body` the media type of a request's body, empty when it has none."""

    method: str
    path: str
    operation_id: str
    description: str
    parameters: tuple[Parameter, ...]
    body: str
    parameters_json: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a document describes. `unusable` gives reasons by operation; `server` is empty when it names none."""

    title: str
    server: str
    operations: tuple[Operation, ...]
    unusable: Mapping[str, str]


def parse(text: str | bytes) -> Document:
    """Return the operations of a document in JSON or YAML. Raises DocumentInvalid."""
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DocumentInvalid(f"it is neither JSON nor YAML: {str(error)[:200]}") from error
    version = str(document.get("openapi", "")) if isinstance(document, dict) else ""
    if not version.startswith("3."):
        raise DocumentInvalid(f"it has no version 3 in 'openapi' (found {version[:20]!r}); convert it to OpenAPI 3")
    try:
        return _document(document)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise DocumentInvalid(f"it is not built as OpenAPI is ({type(error).__name__}: {error})") from error


def _document(document: Mapping[str, Any]) -> Document:
    operations: list[Operation] = []
    unusable: dict[str, str] = {}
    for path, method, shared, entry in _entries(document):
        name = _operation_id(method, path, entry)
        try:
            operations.append(_operation(document, path, method, shared, entry))
        except (NotTranslatable, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            unusable[name] = str(error) or type(error).__name__
    servers: list[dict[str, Any]] = document.get("servers") or [{}]
    info = document.get("info") or {}
    return Document(
        title=str(info.get("title", "")),
        server=str(servers[0].get("url", "")),
        operations=tuple(operations),
        unusable=unusable,
    )


def _entries(document: Mapping[str, Any]) -> Iterator[tuple[str, str, list[Any], Mapping[str, Any]]]:
    for path, item in (document.get("paths") or {}).items():
        if not isinstance(item, dict):
            continue
        shared = item.get("parameters") or []
        for method in METHODS:
            if isinstance(entry := item.get(method), dict):
                yield str(path), method.upper(), shared, entry


def _operation_id(method: str, path: str, entry: Mapping[str, Any]) -> str:
    return str(entry.get("operationId") or f"{method} {path}")


def _operation(
    document: Mapping[str, Any], path: str, method: str, shared: list[Any], entry: Mapping[str, Any]
) -> Operation:
    schemas = Schemas(document)
    properties: dict[str, Any] = {}
    required: list[str] = []
    parameters: list[Parameter] = []
    for described in _described(document, [*shared, *(entry.get("parameters") or [])]):
        if described["in"] == "cookie":
            if described.get("required"):
                raise NotTranslatable(f"it needs the cookie '{described['name']}', and cookies are not sent")
            continue
        parameter = _parameter(described, properties)
        parameters.append(parameter)
        properties[parameter.argument] = _schema_of(described, schemas)
        if described.get("required"):
            required.append(parameter.argument)
    body = _body(document, entry, schemas, properties, required)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    if schemas.defined:
        schema["$defs"] = schemas.defined
    encoded = canonical_json(clean_schema(schema))
    if len(encoded) > SCHEMA_BYTES:
        raise NotTranslatable(f"its schema has {len(encoded):,} bytes; {SCHEMA_BYTES:,} are taken at most")
    if problem := check_schema(encoded):
        raise NotTranslatable(f"its schema is not valid: {problem}")
    said = "\n".join(text for text in (entry.get("summary"), entry.get("description")) if text)
    return Operation(
        method=method,
        path=path,
        operation_id=_operation_id(method, path, entry),
        description=visible(str(said), DESCRIPTION) or f"{method} {path}",
        parameters=tuple(parameters),
        body=body,
        parameters_json=encoded,
    )


def _described(document: Mapping[str, Any], entries: list[Any]) -> list[Mapping[str, Any]]:
    """Return parameters with references followed; an operation's own stand in the place of its path's."""
    found = [at(document, entry) for entry in entries]
    return list({(entry["in"], entry["name"]): entry for entry in found}.values())


def _parameter(entry: Mapping[str, Any], taken: Mapping[str, Any]) -> Parameter:
    place = Place(entry["in"])
    argument = _NOT_ALLOWED.sub("_", entry["name"])
    if argument in taken or argument == BODY:
        argument = f"{argument}_in_{place.value}"
    style = str(entry.get("style") or ("form" if place is Place.QUERY else "simple"))
    explode = entry.get("explode")
    return Parameter(
        name=entry["name"],
        argument=argument,
        place=place,
        style=style,
        explode=style == "form" if explode is None else bool(explode),
    )


def _schema_of(entry: Mapping[str, Any], schemas: Schemas) -> dict[str, Any]:
    content: list[dict[str, Any]] = list((entry.get("content") or {}).values()) or [{}]
    schema = schemas.translate(entry.get("schema") or content[0].get("schema") or {})
    described: dict[str, Any] = schema if isinstance(schema, dict) else {}
    return {**described, "description": str(entry["description"])} if "description" in entry else described


def _body(
    document: Mapping[str, Any],
    entry: Mapping[str, Any],
    schemas: Schemas,
    properties: dict[str, Any],
    required: list[str],
) -> str:
    """Add the request's body to the arguments and return its media type, empty when there is none."""
    if not entry.get("requestBody"):
        return ""
    described = at(document, entry["requestBody"])
    content = {name.partition(";")[0].strip().lower(): one for name, one in (described.get("content") or {}).items()}
    kind = next((name for name in _BODIES if name in content), "")
    kind = kind or next((name for name in content if name.endswith("+json")), "")
    if not kind:
        if not described.get("required"):
            return ""
        raise NotTranslatable(f"it takes a body of {', '.join(sorted(content)) or 'no known type'} only")
    properties[BODY] = schemas.translate(content[kind].get("schema") or {})
    if described.get("required"):
        required.append(BODY)
    return kind
