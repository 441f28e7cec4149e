"""Mending JSON that a model has damaged, within bounds: what it takes time for, it takes from every other run."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import json_repair

# It takes time by the square of the length, and of the nesting far more: 3,000 braces cost seconds.
MOST_CHARACTERS = 32_000
MOST_NESTED = 100
_STEPS = {"{": 1, "[": 1, "}": -1, "]": -1}


def mend(text: str) -> Any:
    """Return the JSON value that `text` was meant to be; raise ValueError when it is too long, too deep, or none."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"JSON that is damaged may have {MOST_CHARACTERS} characters at most")
    # Brackets inside of strings count too, which only makes the bound a little stricter.
    if max(accumulate(_STEPS.get(character, 0) for character in text), default=0) > MOST_NESTED:
        raise ValueError(f"JSON that is damaged may nest {MOST_NESTED} deep at most")
    try:
        return json_repair.loads(text)
    except RecursionError:
        raise ValueError("the JSON nests too deeply") from None
