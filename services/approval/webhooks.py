"""Telling the outside about requests and decisions: signed, retried, at least once, in an outbox that survives a crash.

A receiver checks `Proctor-Signature: t=<unix seconds>,v1=<hex>`: HMAC-SHA256 with the shared secret over `t`, a point
and the body; it refuses old timestamps and drops a `Proctor-Delivery` that it has seen.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from services.approval.domain import Approval, Change, State
from services.approval.links import Link, LinkSigner, linkable
from services.approval.ports import Courier, Delivery, DeliveryFailed, Outbox
from services.chassis.canonical import canonical_json, digest
from services.chassis.clock import Clock

log = logging.getLogger(__name__)

BATCH = 100
SENT_AT_ONCE = 20
FIRST_DELAY = timedelta(seconds=5)
LONGEST_DELAY = timedelta(hours=1)
# Longer than any single attempt; a replica that dies leaves its deliveries to others after this.
LEASE = timedelta(minutes=1)
TOLERANCE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTargets:
    """Where to deliver, with which secret, and what the links of the bodies begin with (empty: no links)."""

    urls: tuple[str, ...]
    secret: str
    link_base: str = ""
    attempts: int = 12


def sign(secret: str, at: datetime, body: bytes) -> str:
    """Return the signature header of `body` sent at `at`."""
    seconds = int(at.timestamp())
    mac = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={mac}"


def verify(secret: str, header: str, body: bytes, now: datetime) -> bool:
    """Return whether `header` signs `body` and is at most TOLERANCE old; what every receiver should do."""
    fields = dict(part.partition("=")[::2] for part in header.split(","))
    if not fields.get("t", "").isdecimal():
        return False
    at = datetime.fromtimestamp(int(fields["t"]), now.tzinfo)
    return abs(now - at) <= TOLERANCE and hmac.compare_digest(header, sign(secret, at, body))


class Webhooks:
    """Turns changes into deliveries, and delivers what is due."""

    def __init__(
        self,
        outbox: Outbox,
        courier: Courier,
        signer: LinkSigner,
        targets: WebhookTargets,
        clock: Clock,
        jitter: Callable[[], float],
    ) -> None:
        self._outbox = outbox
        self._courier = courier
        self._signer = signer
        self._targets = targets
        self._clock = clock
        self._jitter = jitter

    async def open(self) -> None:
        """Begin with the changes made from now on, or go on where the last process stopped."""
        await self._outbox.open()

    async def enqueue(self) -> int:
        """Put deliveries for every change not yet seen into the outbox; return how many changes there were."""
        total = 0
        while count := await self._outbox.enqueue(BATCH, self.compose):
            total += count
        return total

    async def send_due(self) -> int:
        """Try each due delivery once; return how many were tried."""
        now = self._clock.now()
        due = await self._outbox.claim(now, now + LEASE, SENT_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for delivery in due:
                group.create_task(self._send(delivery))
        return len(due)

    def compose(self, change: Change, approval: Approval | None) -> Sequence[Delivery]:
        """Return one delivery for each endpoint; none for changes of rules."""
        if change.action.on_rule or approval is None:
            return ()
        return [self._delivery(change, approval, url) for url in self._targets.urls]

    def _delivery(self, change: Change, approval: Approval, url: str) -> Delivery:
        delivery_id = digest(f"{change.sequence} {url}".encode())[:32]
        event = f"approval.{change.action}"
        message: dict[str, object] = {
            "id": delivery_id,
            "type": event,
            "at": change.at.isoformat(),
            "actor": change.actor,
            "tenant": change.tenant,
            "approval": _summary(approval),
        }
        if self._targets.link_base and approval.state is State.PENDING and linkable(approval):
            link = Link(
                tenant=approval.tenant, approval_id=approval.approval_id, addressee=urlsplit(url).hostname or url
            )
            message["link"] = self._targets.link_base + self._signer.token(link)
        return Delivery(
            delivery_id=delivery_id,
            endpoint=url,
            tenant=change.tenant,
            approval_id=approval.approval_id,
            event=event,
            body=canonical_json(message),
            attempts=0,
            next_at=self._clock.now(),
        )

    async def _send(self, delivery: Delivery) -> None:
        headers = {
            "Content-Type": "application/json",
            "Proctor-Delivery": delivery.delivery_id,
            "Proctor-Event": delivery.event,
            "Proctor-Signature": sign(self._targets.secret, self._clock.now(), delivery.body),
        }
        try:
            await self._courier.post(delivery.endpoint, delivery.body, headers)
        except DeliveryFailed as failure:
            await self._failed(delivery, failure)
        else:
            await self._outbox.remove(delivery)

    async def _failed(self, delivery: Delivery, failure: DeliveryFailed) -> None:
        attempts = delivery.attempts + 1
        facts = {"delivery": delivery.delivery_id, "attempts": attempts, "host": urlsplit(delivery.endpoint).hostname}
        if failure.final or attempts >= self._targets.attempts:
            log.error("webhook given up: %s", failure, extra={"event": "webhook.given_up", **facts})
            await self._outbox.remove(delivery)
            return
        log.warning("webhook failed: %s", failure, extra={"event": "webhook.failed", **facts})
        await self._outbox.reschedule(delivery, self._clock.now() + self._delay(attempts), str(failure)[:500])

    def _delay(self, attempts: int) -> timedelta:
        """Doubling from 5 s to an hour, of which a random half keeps many deliveries from coming at once."""
        doubling: float = 2.0 ** (attempts - 1)
        return min(FIRST_DELAY * doubling, LONGEST_DELAY) * (0.5 + 0.5 * self._jitter())


def _summary(approval: Approval) -> dict[str, object]:
    """What is told: never the arguments or answers, which the confirmation page shows."""
    return {
        "id": approval.approval_id,
        "kind": approval.kind,
        "state": approval.state,
        "run": approval.run_id,
        "call": approval.call_id,
        "conversation": approval.conversation_id,
        "tool": approval.tool,
        "arguments_digest": approval.arguments_digest,
        "reason": approval.reason,
        "policy": approval.policy,
        "agent": approval.agent,
        "requested_by": approval.requested_by,
        "requested_at": approval.requested_at.isoformat(),
        "deadline": approval.deadline.isoformat(),
        "decided_by": approval.decided_by,
        "decided_at": approval.decided_at.isoformat() if approval.decided_at else None,
        "comment": approval.comment,
    }
