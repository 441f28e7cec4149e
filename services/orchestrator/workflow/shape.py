"""The form of a workflow in YAML, as JSON Schemas: which keys there are, and what stands in them."""

from __future__ import annotations

from typing import Any

from services.orchestrator.workflow.graph import MAX_STEPS, Kind, Type

ID = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"
MAX_NODES = 200
MAX_ATTEMPTS = 10

_ID: dict[str, Any] = {"type": "string", "pattern": ID}
_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_NAMES: dict[str, Any] = {"type": "array", "items": _TEXT}
_VALUES: dict[str, Any] = {"type": "object"}
_SECONDS: dict[str, Any] = {"type": "number", "exclusiveMinimum": 0}


def _object(properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


# The state: a plain value is a default and gives the type.
_VARIABLE: dict[str, Any] = {
    "anyOf": [
        {"type": ["string", "integer", "number", "boolean", "array"]},
        _object({"type": {"enum": [kind.value for kind in Type]}, "default": {}}, ("type",)),
    ]
}

WORKFLOW = _object(
    {
        "description": {"type": "string", "maxLength": 4096},
        "parameters": {"type": "object"},
        "direct_output": {"type": "boolean"},
        "state": {"type": "object", "propertyNames": {"pattern": ID}, "additionalProperties": _VARIABLE},
        "steps": {"type": "integer", "minimum": 1, "maximum": MAX_STEPS},
        "nodes": {
            "type": "object",
            "minProperties": 1,
            "maxProperties": MAX_NODES,
            "propertyNames": {"pattern": ID},
            "additionalProperties": {
                "type": "object",
                "properties": {"type": {"enum": [kind.value for kind in Kind]}},
                "required": ["type"],
            },
        },
    },
    ("nodes",),
)

_COMMON: dict[str, Any] = {"type": {}, "title": {"type": "string", "maxLength": 200}}
_NEXT: dict[str, Any] = {"next": _ID}
# What works outside may fail, take long, and be tried again.
_FALLIBLE: dict[str, Any] = {
    **_NEXT,
    "on_error": _ID,
    "timeout_seconds": _SECONDS,
    "retry": _object(
        {
            "attempts": {"type": "integer", "minimum": 1, "maximum": MAX_ATTEMPTS},
            "wait_seconds": {"type": "number", "minimum": 0, "maximum": 300},
        }
    ),
}


def _node(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return _object({**_COMMON, **properties}, required)


NODES: dict[Kind, dict[str, Any]] = {
    Kind.START: _node(_NEXT, "next"),
    Kind.AGENT: _node(
        {
            **_FALLIBLE,
            "prompt": _TEXT,
            "agent": _TEXT,
            "instructions": _TEXT,
            "model": _TEXT,
            "tools": _NAMES,
            "sources": _NAMES,
            "output": {"type": "object"},
            "history": {"type": "boolean"},
        },
        "next",
    ),
    Kind.TOOL: _node({**_FALLIBLE, "tool": _TEXT, "arguments": _VALUES}, "tool", "next"),
    Kind.CODE: _node({**_FALLIBLE, "code": _TEXT, "inputs": _VALUES}, "code", "next"),
    Kind.HTTP: _node(
        {
            **_FALLIBLE,
            "url": _TEXT,
            "method": {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]},
            "headers": _VALUES,
            "query": _VALUES,
            "body": {},
        },
        "url",
        "next",
    ),
    Kind.STATE: _node({**_NEXT, "on_error": _ID, "set": {"type": "object", "minProperties": 1}}, "set", "next"),
    Kind.CONDITION: _node(
        {
            "branches": {
                "type": "array",
                "minItems": 1,
                "maxItems": 50,
                "items": _object({"when": _TEXT, "next": _ID}, ("when", "next")),
            },
            "else": _ID,
            "on_error": _ID,
        },
        "branches",
        "else",
    ),
    Kind.PARALLEL: _node(
        {"branches": {"type": "array", "minItems": 2, "maxItems": 16, "uniqueItems": True, "items": _ID}, "join": _ID},
        "branches",
        "join",
    ),
    Kind.APPROVAL: _node(
        {
            **_NEXT,
            "message": _TEXT,
            "details": _VALUES,
            "denied": _ID,
            "group": _TEXT,
            "quorum": {"type": "integer", "minimum": 1, "maximum": 20},
            "deadline_seconds": _SECONDS,
            "on_error": _ID,
        },
        "message",
        "next",
    ),
    Kind.QUESTION: _node(
        {
            **_NEXT,
            "on_error": _ID,
            "questions": {"type": "array", "minItems": 1, "maxItems": 10, "items": {"type": "object"}},
        },
        "questions",
        "next",
    ),
    Kind.NOTE: _node({**_NEXT, "text": _TEXT}, "text"),
    Kind.END: _node({"output": _TEXT, "value": {}, "fail": _TEXT}),
}
