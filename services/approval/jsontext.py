"""JSON that comes from outside: parsed strictly, so that equal values have one canonical form."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from services.chassis.canonical import canonical_json


def parse_json(text: bytes) -> Any:
    """Return the value of `text`; raise ValueError for anything but one JSON value with finite numbers."""
    try:
        return json.loads(text.decode("utf-8"), parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def canonical(text: bytes) -> bytes:
    """Return `text` in canonical form; raise ValueError as parse_json does."""
    return canonical_json(parse_json(text))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large for a number")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Two readers may pick different ones of two equal names, and a person would approve what is not run.
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name appears twice in one object")
    return value
