"""Whether the arguments that a node gives can fit a tool's schema, as far as that is known before it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry

from services.orchestrator.workflow.values import formulas


def argument_problems(arguments: Mapping[str, Any], parameters_json: bytes) -> Iterator[tuple[str, str]]:
    """Yield (argument, what is wrong): names that are missing or unknown, and literal values of the wrong form."""
    schema = json.loads(parameters_json or b"{}")
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in arguments:
            yield name, "the tool needs it"
    for name, value in arguments.items():
        if name not in properties:
            if schema.get("additionalProperties") is False:
                known = ", ".join(f"'{one}'" for one in properties) or "none"
                yield name, f"the tool has no such argument; it has {known}"
        elif not any(formulas(value, name)) and (wrong := _wrong(value, schema, name)):
            yield name, wrong


def _wrong(value: Any, schema: Mapping[str, Any], name: str) -> str:
    """Return why a value known already does not fit; empty when it does. No schema is ever fetched."""
    part = {**schema["properties"][name], "$defs": schema.get("$defs", {})}
    error = best_match(Draft202012Validator(part, registry=Registry()).iter_errors(value))
    return error.message if error is not None else ""
