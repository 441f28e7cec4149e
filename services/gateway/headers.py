"""Reading a request's headers where they lie: the framework's mapping is made, and searched, for each of them."""

from __future__ import annotations

from starlette.types import Scope


def header(scope: Scope, name: bytes) -> str:
    """Return the first header of a lower-case name, empty when there is none."""
    value: bytes
    for given, value in scope["headers"]:
        if given == name:
            return value.decode("latin-1")
    return ""


def names(scope: Scope) -> set[bytes]:
    """Return the names of the headers that came, in lower case."""
    return {name for name, _ in scope["headers"]}
