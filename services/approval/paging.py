"""Page tokens of the approval service's lists, bound to the filter that they page through."""

from __future__ import annotations

from datetime import UTC, datetime

from services.approval.ports import Place
from services.approval.records import Query
from services.chassis.errors import PageTokenInvalid
from services.chassis.paging import decode_token, encode_token

RULES = "allow_rules"
AUDIT = "audit"


def approvals_scope(query: Query) -> str:
    """Return the name of the list that `query` asks for."""
    return "/".join(["approvals", ",".join(sorted(query.states)), query.run_id, query.tool, query.kind or ""])


def token(scope: str, at: datetime, key: str) -> str:
    """Return the token after the row with these sort keys."""
    return encode_token(scope, at.isoformat(), key)


def place(scope: str, page_token: str) -> Place | None:
    """Return where `page_token` goes on, None for the first page."""
    if not page_token:
        return None
    try:
        at, key = decode_token(scope, page_token)
        return Place(at=datetime.fromisoformat(str(at)).astimezone(UTC), id=str(key))
    except ValueError:
        raise _damaged() from None


def audit_token(subject: str, sequence: int) -> str:
    """Return the token after entry `sequence`."""
    return encode_token(f"{AUDIT}/{subject}", sequence)


def audit_place(subject: str, page_token: str) -> int:
    """Return the sequence after which `page_token` goes on, 0 for the first page."""
    if not page_token:
        return 0
    keys = decode_token(f"{AUDIT}/{subject}", page_token)
    if len(keys) != 1 or not isinstance(keys[0], int):
        raise _damaged()
    return keys[0]


def _damaged() -> PageTokenInvalid:
    return PageTokenInvalid("the page token is damaged; start again without one")
