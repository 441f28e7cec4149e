"""The OpenAPI document: what FastAPI knows, plus the messages that answers carry and the form of every failure."""

from __future__ import annotations

import json
import re
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from google.protobuf.message import Message

from services.gateway import openai_errors
from services.gateway.problems import MEDIA_TYPE
from services.gateway.schemas import REFERENCE, components, reference

_PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457 problem document; `reason` is stable.",
    "required": ["type", "title", "status", "detail", "reason"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong and what to do."},
        "reason": {"type": "string"},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
        "violations": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "description": {"type": "string"}},
            },
        },
        "request_id": {"type": "string"},
    },
}
_OPENAI_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
# Routes that speak an OpenAI wire.
OPENAI_TAG = "openai"
MESSAGE_REFERENCE = re.compile(rf"{REFERENCE}(proctor\.[A-Za-z0-9_.]+)")
_METHODS = ("get", "post", "put", "patch", "delete")


def answers(message: type[Message], status: int = 200, *, stream: str = "") -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that answers with `message`, and as an event stream described by `stream`."""
    content: dict[str, Any] = {"application/json": {"schema": reference(message)}}
    if stream:
        content["text/event-stream"] = {"schema": _event(stream)}
    return {status: {"description": message.DESCRIPTOR.name, "content": content}}


def streams(description: str, *, or_json: str = "") -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that streams, or answers with one JSON object described by `or_json`."""
    content: dict[str, Any] = {"text/event-stream": {"schema": _event(description)}}
    if or_json:
        content["application/json"] = {"schema": {"type": "object", "description": or_json}}
    return {200: {"description": description, "content": content}}


def _event(description: str) -> dict[str, Any]:
    """Return the schema of one event of a stream."""
    text = {"type": "string"}
    return {"type": "object", "description": description, "properties": {"id": text, "event": text, "data": text}}


def install(app: FastAPI) -> None:
    """Make `app.openapi()` return the complete document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _complete(
                get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            )
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    parts = document.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    named = set(MESSAGE_REFERENCE.findall(json.dumps(document["paths"])))
    schemas.update(components(sorted(named)))
    schemas["Problem"] = _PROBLEM
    schemas["OpenAIError"] = _OPENAI_ERROR
    parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                _add_failures(path, item[method])
    return document


def _add_failures(path: str, operation: dict[str, Any]) -> None:
    operation["responses"].pop("422", None)
    if openai_errors.speaks_openai(path):
        content = {"application/json": {"schema": {"$ref": f"{REFERENCE}OpenAIError"}}}
    else:
        content = {MEDIA_TYPE: {"schema": {"$ref": f"{REFERENCE}Problem"}}}
    operation["responses"]["default"] = {"description": "Failure", "content": content}
    operation["security"] = [{"key": []}, {}]
