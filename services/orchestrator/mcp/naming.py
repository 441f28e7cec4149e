"""Names that a model can call, and texts of servers that it may read."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Any

SEPARATOR = "__"
NAME_LIMIT = 64
DESCRIPTION_LIMIT = 2000
INNER_DESCRIPTION_LIMIT = 500
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]")
# Controls, and what a person does not see but a model reads: format characters, private use, tags, surrogates.
_HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})
_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\n{3,}")


def tool_name(server: str, tool: str) -> str:
    """Return `server__tool` of at most 64 letters, digits, `_` and `-`.

    A name that must be changed for that ends in a hash of the original, so two different tools never get one name, and
    the same tool always gets the same, whatever else its server offers.
    """
    plain = f"{server}{SEPARATOR}{_NOT_ALLOWED.sub('_', tool)}"
    if plain == f"{server}{SEPARATOR}{tool}" and len(plain) <= NAME_LIMIT:
        return plain
    mark = "_" + hashlib.sha256(f"{server}\x00{tool}".encode(errors="replace")).hexdigest()[:8]
    return plain[: NAME_LIMIT - len(mark)] + mark


def visible(text: str, limit: int) -> str:
    """Return `text` as a person would see it, cut to `limit` characters: nothing hidden reaches a model."""
    shown = "".join(
        "\n" if char in "\r\n" else " " if char == "\t" else char
        for char in text[: limit * 4].replace("\r\n", "\n")
        if char in "\r\n\t" or unicodedata.category(char) not in _HIDDEN
    )
    shown = _LINES.sub("\n\n", _SPACES.sub(" ", shown)).strip()
    return shown if len(shown) <= limit else shown[: limit - 1].rstrip() + "…"


def clean_schema(schema: Any) -> Any:
    """Return a JSON Schema whose words for people are visible and short; its rules stay as they are."""
    if isinstance(schema, list):
        return [clean_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _clean_entry(key, value) for key, value in schema.items()}


def _clean_entry(key: str, value: Any) -> Any:
    if key in ("description", "title", "$comment") and isinstance(value, str):
        return visible(value, INNER_DESCRIPTION_LIMIT)
    if key in ("enum", "const", "default", "examples"):
        return value
    return clean_schema(value)
