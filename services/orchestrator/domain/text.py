"""Text that every store and wire can hold."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar, cast

T = TypeVar("T")
# What holds no text; numbers, so enums too.
_PLAIN = (int, float, bytes, datetime, timedelta)


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
    if not value or isinstance(value, _PLAIN):
        return value
    if isinstance(value, tuple):
        items = tuple(_clean(item) for item in value)
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    changed = {}
    for name in _fields(cast("Any", type(value))):
        old = getattr(value, name)
        # Most fields of most values: not worth a call.
        if not old or isinstance(old, _PLAIN) or (isinstance(old, str) and old.isascii()):
            continue
        new = _clean(old)
        if new is not old and new != old:
            changed[name] = new
    return dataclasses.replace(cast("Any", value), **changed) if changed else value


@cache
def _fields(kind: type) -> tuple[str, ...]:
    """Return the names of a dataclass's fields, none for any other class."""
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()
