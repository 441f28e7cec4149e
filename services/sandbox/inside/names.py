"""Which names a file from inside may carry. Used inside to choose, and outside again to enforce."""

from __future__ import annotations

import unicodedata

MAX_BYTES = 200
MAX_DEPTH = 8


def rejection(name: str) -> str:
    """Return why `name` (a path relative to the workspace) is refused, or "" when it is fine."""
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError:
        return "the name is not UTF-8"
    if not name or len(encoded) > MAX_BYTES:
        return f"the name is empty or longer than {MAX_BYTES} bytes"
    if any(unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") for character in name):
        return "the name has control characters"
    if "\\" in name:
        return "the name has a backslash"
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "the name is not a plain relative path"
    if len(parts) > MAX_DEPTH:
        return f"it lies deeper than {MAX_DEPTH} folders"
    return ""


def normalise(name: str) -> str:
    """Return the composed (NFC) form, so that equal-looking names are equal."""
    return unicodedata.normalize("NFC", name)


def display(name: str) -> str:
    """Return `name` with everything unprintable escaped, cut to a length people can read."""
    shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
    return escaped if len(escaped) <= MAX_BYTES else escaped[:MAX_BYTES] + "…"
