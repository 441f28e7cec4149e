"""Page tokens: the keys of the last row shown, opaque to clients and bound to one list."""

from __future__ import annotations

import base64
import binascii
import json

from services.chassis.errors import PageTokenInvalid

Key = str | int | float


def encode_token(scope: str, *keys: Key) -> str:
    """Return the token after which the list `scope` goes on; `scope` names the list and whatever filters it."""
    raw = json.dumps([1, scope, *keys], separators=(",", ":"), ensure_ascii=False).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode_token(scope: str, token: str) -> tuple[Key, ...]:
    """Return the keys inside `token`, or raise PageTokenInvalid when it is damaged or another list's."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        version, found, *keys = json.loads(raw)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise PageTokenInvalid("the page token is damaged; start again without one") from None
    if version != 1 or found != scope:
        raise PageTokenInvalid("the page token belongs to another list or filter; start again without one")
    if not all(isinstance(key, Key) and not isinstance(key, bool) for key in keys):
        raise PageTokenInvalid("the page token is damaged; start again without one")
    return tuple(keys)
