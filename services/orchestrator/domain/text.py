"""Text that every store and wire can hold."""

from __future__ import annotations

import dataclasses
from typing import TypeVar, cast

T = TypeVar("T")


def well_formed(text: str) -> str:
    """Return `text` with surrogate halves joined to the characters they mean, and a lone one replaced by U+FFFD.

    JSON escapes bring them, and a stream may cut a pair in two. UTF-8 cannot hold them: protobuf and databases refuse.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def without_nul(text: str) -> str:
    """Return `text` as PostgreSQL's text columns can hold it: well-formed, no NUL."""
    return well_formed(text).replace("\0", "")


def all_well_formed(value: T) -> T:
    """Return a dataclass, tuple or dict with every string in it well-formed; the same object when they all are."""
    return cast("T", _clean(value))


def _clean(value: object) -> object:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, tuple):
        items = tuple(_clean(item) for item in value)
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {}
        for field in dataclasses.fields(value):
            old = getattr(value, field.name)
            new = _clean(old)
            if new is not old and new != old:
                changed[field.name] = new
        return dataclasses.replace(value, **changed) if changed else value
    return value
