"""The gate's checks that need nobody else: is the tool known, are its arguments valid."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from services.orchestrator.domain.messages import ToolCall

_STOP_AFTER = 3


class ArgumentsRefused(Exception):
    """The arguments do not fit the schema; the message tells the model what to correct."""


def parse_arguments(call: ToolCall, parameters_json: bytes) -> Mapping[str, Any]:
    """Return the arguments of `call`, or raise ArgumentsRefused naming the field and the rule."""
    if not call.arguments_json:
        written = call.malformed_arguments[:200]
        raise ArgumentsRefused(f"the arguments are not a JSON object: {written!r}; send one JSON object")
    return validate_arguments(call.arguments_json, parameters_json)


def validate_arguments(arguments_json: bytes, parameters_json: bytes) -> Mapping[str, Any]:
    """Return the arguments, or raise ArgumentsRefused; types, enums and nested rules count, not only presence."""
    arguments = json.loads(arguments_json)
    if not isinstance(arguments, dict):
        raise ArgumentsRefused(f"the arguments are {_kind(arguments)}, not a JSON object; send one JSON object")
    try:
        validator = _validator(parameters_json)
        error = None if validator.is_valid(arguments) else best_match(validator.iter_errors(arguments))
    except RecursionError:
        raise ArgumentsRefused("the arguments nest too deeply; send flatter ones") from None
    except Unresolvable as unresolved:
        raise ArgumentsRefused(f"the tool's schema refers to '{unresolved.ref}', which is not in it") from unresolved
    if error is not None:
        where = "/".join(str(step) for step in error.absolute_path)
        raise ArgumentsRefused(f"argument '{where}': {error.message}" if where else error.message)
    return arguments


def check_schema(parameters_json: bytes) -> str:
    """Return what is wrong with a JSON Schema, empty when nothing is."""
    try:
        Draft202012Validator.check_schema(json.loads(parameters_json))
    except (SchemaError, ValueError) as error:
        return str(getattr(error, "message", error))
    except RecursionError:
        return "it nests too deeply"
    return ""


@lru_cache(maxsize=512)
def _validator(parameters_json: bytes) -> Draft202012Validator:
    # An empty registry: a schema from outside may name an address, which must never be fetched.
    return Draft202012Validator(json.loads(parameters_json or b"{}"), registry=Registry())


def _kind(value: object) -> str:
    return {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}.get(type(value), "a number")


def unknown_tool(name: str, offered: Sequence[str], times: int) -> str:
    """Tell the model that it invented a tool; from the third time on, to stop."""
    near = difflib.get_close_matches(name, offered, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else "there is none of a similar name."
    listing = ", ".join(sorted(offered)) or "none"
    if times >= _STOP_AFTER:
        return (
            f"There is no tool '{name}'. This is the {times}. call of a tool that does not exist: stop calling tools "
            "and answer with what you have."
        )
    return f"There is no tool '{name}': {hint} Tools: {listing}."


def stop_asked(times: int) -> bool:
    """Whether the model was told to stop calling tools that do not exist."""
    return times >= _STOP_AFTER
