"""One byte form for a JSON value, so that equal values have equal digests."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> bytes:
    r"""Return `value` as JSON with sorted keys, no spaces, UTF-8 and integers of any size intact.

    Raises ValueError for NaN and the infinities, TypeError for what JSON cannot hold. A lone surrogate, which UTF-8
    cannot hold, is written as its `\u` escape.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def digest(data: bytes) -> str:
    """Return the SHA-256 of `data` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
