"""Python of code nodes: inputs arrive as data, never as text of the program, and what it prints is the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.chassis.canonical import canonical_json

# As run_code tells its results.
_BEFORE, _AFTER = "stdout:\n", ("\nstderr:\n", "\nfiles kept for the user: ", "\nfiles not kept: ")


def with_inputs(code: str, inputs: Mapping[str, Any]) -> str:
    """Return the program with a dict `inputs` before it; the same when there are none."""
    if not inputs:
        return code
    # A literal of a JSON text: whatever stands in it, it stays a text.
    text = ascii(canonical_json(inputs).decode())
    return f"import json as _json\ninputs = _json.loads({text})\n{code}"


def printed(told: str) -> str:
    """Return what a program printed, out of what run_code tells of it."""
    _, found, rest = told.partition(_BEFORE)
    if not found:
        return ""
    for mark in _AFTER:
        rest = rest.partition(mark)[0]
    return rest.strip()
