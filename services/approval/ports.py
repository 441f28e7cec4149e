"""What the use cases need from the outside, each named by its role."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from services.approval.domain import AllowRule, Approval, Change, Kind, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a page ended: the sort keys of its last row."""

    at: datetime
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How many records wait; `since` is when the oldest was requested, None when none waits."""

    count: int
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Whose records are meant: everybody's (`user` None), or those of a user and those that ask `groups`."""

    tenant: str
    user: str | None = None
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which records a list holds; empty fields exclude nothing."""

    audience: Audience
    states: frozenset[State] = frozenset()
    run_id: str = ""
    tool: str = ""
    kind: Kind | None = None


class Approvals(Protocol):
    """Durable records. A write stores its changes in the same transaction, and wakes whoever follows changes."""

    async def add(self, approval: Approval, changes: Sequence[Change]) -> bool:
        """Store a new record; False, and nothing is written, when its id is taken in its tenant."""

    async def find(self, tenant: str | None, ids: Sequence[str]) -> list[Approval]:
        """Return the records that exist among `ids`, of one tenant or (None) of all."""

    async def replace(
        self, before: Approval, after: Approval, changes: Sequence[Change], rule: AllowRule | None = None
    ) -> bool:
        """Put `after` for `before`, and add `rule`; False, and nothing is written, when another came first."""

    async def expire(
        self, now: datetime, limit: int, *, tenant: str | None = None, ids: Sequence[str] | None = None
    ) -> list[Approval]:
        """Settle up to `limit` pending records whose deadline is not after `now` as expired, oldest deadline first."""

    async def page(self, wanted: Filter, after: Place | None, limit: int) -> list[Approval]:
        """Return up to `limit` records after `after`, newest first."""

    async def waiting(self) -> Waiting:
        """Return how many records wait, and since when, over all tenants."""


class Rules(Protocol):
    """Durable allow rules."""

    async def add(self, rule: AllowRule, change: Change) -> None:
        """Store a new rule."""

    async def candidates(self, tenant: str, user: str, tool: str, now: datetime) -> list[AllowRule]:
        """Return the user's rules that name `tool`, or a prefix of it with `*`, and have not ended."""

    async def page(self, tenant: str, user: str, after: Place | None, limit: int) -> list[AllowRule]:
        """Return up to `limit` of the user's rules after `after`, newest first."""

    async def find(self, tenant: str, user: str, rule_id: str) -> AllowRule | None:
        """Return the user's rule."""

    async def remove(self, rule: AllowRule, change: Change) -> bool:
        """Delete the rule; False, and nothing is written, when it was gone already."""


class ChangeLog(Protocol):
    """The stored changes, in the order of commits."""

    async def latest(self) -> int:
        """Return the sequence of the last change, 0 when there is none."""

    async def after(self, sequence: int, limit: int) -> list[Change]:
        """Return up to `limit` changes after `sequence`."""

    async def prune(self, before: datetime) -> int:
        """Delete changes made before `before` that every durable follower has worked off; return how many."""


class Listener(Protocol):
    """One follower's ear for the bell."""

    async def wait(self, timeout: float) -> None:
        """Return after a ring since the last wait, or after `timeout` seconds."""


class Bell(Protocol):
    """Tells followers, in this process and where possible in others, that something changed. A hint: they poll too."""

    def ring(self) -> None: ...

    def listen(self) -> Listener: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One link of a tenant's chain; `sequence` counts from 1 without gaps, hashes are SHA-256 in hexadecimal."""

    tenant: str
    sequence: int
    at: datetime
    action: str
    actor: str
    subject: str
    detail: bytes
    previous_hash: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """The end of a tenant's chain; before its first entry sequence 0 and 64 zeros."""

    sequence: int
    hash: str


class AuditLog(Protocol):
    """Append-only entries; the database refuses to change or delete one."""

    async def append(self, limit: int, link: Callable[[AuditHead, Change], AuditEntry]) -> int:
        """Chain up to `limit` changes not yet chained, in one transaction that excludes other appenders; how many."""

    async def head(self, tenant: str) -> AuditHead:
        """Return the end of the tenant's chain as it was written beside the entries."""

    async def read(self, tenant: str, after: int, limit: int, subject: str = "") -> list[AuditEntry]:
        """Return up to `limit` entries after sequence `after`, oldest first, all or those of one subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message to one endpoint; `attempts` counts those made, `next_at` is when the next one is due."""

    delivery_id: str
    endpoint: str
    tenant: str
    approval_id: str
    event: str
    body: bytes
    attempts: int
    next_at: datetime


class Outbox(Protocol):
    """Webhook deliveries that survive a crash."""

    async def open(self) -> None:
        """Begin with the changes made from now on, unless it was opened before: then go on where it stopped."""

    async def enqueue(self, limit: int, compose: Callable[[Change, Approval | None], Sequence[Delivery]]) -> int:
        """Turn up to `limit` changes not yet seen into deliveries, in one transaction; return how many changes."""

    async def claim(self, now: datetime, until: datetime, limit: int) -> list[Delivery]:
        """Return due deliveries, none of which another replica gets before `until`."""

    async def reschedule(self, delivery: Delivery, next_at: datetime, error: str) -> None:
        """Count a failed attempt, and try again at `next_at`."""

    async def remove(self, delivery: Delivery) -> None:
        """Take the delivery out: it arrived, or is given up."""


class Courier(Protocol):
    """Carries a signed message to an endpoint."""

    async def post(self, endpoint: str, body: bytes, headers: dict[str, str]) -> None:
        """Deliver, or raise DeliveryFailed with what the endpoint said."""


class DeliveryFailed(Exception):
    """The endpoint did not take the message; `final` when trying again cannot help (410 Gone)."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final
