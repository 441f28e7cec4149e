"""Signed links to the confirmation page: a capability to decide one record once, in the name of its addressee.

Only calls that one person may decide get a link: no quorum, no four eyes, since a link proves nobody's identity.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass

from services.approval.decisions import Decided, Decisions, Seen
from services.approval.domain import Approval, Decision, Gate, Kind, State
from services.approval.entitlement import DECIDE
from services.approval.errors import ApprovalDecided, ApprovalExpired, LinkInvalid, NotEntitled
from services.approval.records import Records
from services.chassis.canonical import canonical_json
from services.chassis.errors import NotConfigured
from services.chassis.identity import Principal

VERSION = 1
PREFIX = "link:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a link is for."""

    tenant: str
    approval_id: str
    addressee: str

    @property
    def decider(self) -> str:
        """In whose name it decides."""
        return PREFIX + self.addressee


class LinkSigner:
    """Makes and reads tokens: base64url of the link, a point, base64url of its HMAC-SHA256."""

    def __init__(self, secret: str) -> None:
        # A key of its own, so that no webhook signature is ever a link's.
        self._key = hmac.digest(secret.encode(), b"proctor approval link", hashlib.sha256) if secret else b""

    def token(self, link: Link) -> str:
        """Return the token of `link`; raises NotConfigured without a secret."""
        payload = canonical_json([VERSION, link.tenant, link.approval_id, link.addressee])
        return f"{_encode(payload)}.{_encode(self._mac(payload))}"

    def read(self, token: str) -> Link:
        """Return the link of `token`, or raise LinkInvalid when it was not made with our secret."""
        try:
            payload, mac = map(_decode, token.split("."))
        except (ValueError, binascii.Error):
            raise LinkInvalid from None
        if not hmac.compare_digest(mac, self._mac(payload)):
            raise LinkInvalid
        version, tenant, approval_id, addressee = json.loads(payload)
        if version != VERSION:
            raise LinkInvalid
        return Link(tenant=tenant, approval_id=approval_id, addressee=addressee)

    def _mac(self, payload: bytes) -> bytes:
        if not self._key:
            raise NotConfigured("links need a secret; set PROCTOR_APPROVAL_WEBHOOK_SECRET")
        return hmac.digest(self._key, payload, hashlib.sha256)


def linkable(approval: Approval) -> bool:
    """Return whether a link may decide `approval`."""
    asks_one = approval.gate in (Gate.ASK, Gate.ASK_ALWAYS) and not approval.four_eyes
    return approval.kind is Kind.TOOL and asks_one


class Links:
    """Shows what a link is for, and decides by it."""

    def __init__(self, signer: LinkSigner, records: Records, decisions: Decisions) -> None:
        self._signer = signer
        self._records = records
        self._decisions = decisions

    async def look(self, token: str) -> tuple[Approval, Link]:
        """Return the record as it is now; nothing is decided."""
        link = self._signer.read(token)
        return await self._records.one(link.tenant, link.approval_id), link

    async def decide(self, token: str, decision: Decision, *, comment: str, arguments_digest: str) -> Decided:
        """Decide once; a settled record refuses every link, also the one that settled it."""
        approval, link = await self.look(token)
        if not linkable(approval):
            raise NotEntitled(f"approval '{approval.approval_id}' cannot be decided by a link; sign in to decide it")
        if approval.state is State.EXPIRED:
            raise ApprovalExpired(approval)
        if approval.state is not State.PENDING:
            raise ApprovalDecided(approval)
        addressee = Principal(tenant=link.tenant, user=link.decider, scopes=frozenset({DECIDE}), actor="link")
        decided = await self._decisions.decide(
            addressee, link.approval_id, decision, comment=comment, seen=Seen(arguments_digest=arguments_digest)
        )
        if not decided.now:
            raise ApprovalDecided(decided.approval)
        return decided


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
