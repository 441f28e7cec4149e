"""Proof of what was decided: a hash chain for each tenant, made by one appender from the log of changes.

An entry's hash covers the tenant, the entry and the hash before it, so a changed, missing, added or reordered entry
breaks the chain from there on. A chain rewritten to its end holds again; whoever notes a head elsewhere finds that too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from services.approval.domain import Change
from services.approval.ports import AuditEntry, AuditHead, AuditLog
from services.chassis.canonical import canonical_json, digest

ZERO = "0" * 64
EMPTY = AuditHead(sequence=0, hash=ZERO)
BATCH = 500


def link(head: AuditHead, change: Change) -> AuditEntry:
    """Return the entry that chains `change` to `head`."""
    entry = AuditEntry(
        tenant=change.tenant,
        sequence=head.sequence + 1,
        at=change.at,
        action=change.action,
        actor=change.actor,
        subject=change.subject,
        detail=change.detail,
        previous_hash=head.hash,
        hash="",
    )
    return replace(entry, hash=entry_hash(entry))


def as_json(entry: AuditEntry) -> dict[str, object]:
    """Return the entry as it is exported and hashed, without its own hash."""
    return {
        "tenant": entry.tenant,
        "sequence": entry.sequence,
        "at": entry.at.isoformat(timespec="microseconds"),
        "action": entry.action,
        "actor": entry.actor,
        "subject": entry.subject,
        # As text: it is hashed byte for byte.
        "detail": entry.detail.decode("utf-8", errors="replace"),
        "previous_hash": entry.previous_hash,
    }


def entry_hash(entry: AuditEntry) -> str:
    """Return the hash that the entry must have."""
    return digest(canonical_json(as_json(entry)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a verification found; `broken_at` is the first sequence that does not hold, 0 when all do."""

    entries: int
    head: AuditHead
    broken_at: int = 0
    problem: str = ""

    @property
    def intact(self) -> bool:
        return not self.broken_at


class Audit:
    """Appends, reads and verifies. Reading first appends what is waiting, so a decision is there once it is told."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    async def append(self) -> int:
        """Chain every change not yet chained; return how many."""
        total = 0
        while count := await self._log.append(BATCH, link):
            total += count
        return total

    async def read(self, tenant: str, after: int, limit: int, subject: str = "") -> list[AuditEntry]:
        """Return up to `limit` entries after sequence `after`, oldest first."""
        await self.append()
        return await self._log.read(tenant, after, limit, subject)

    async def export(self, tenant: str, after: int) -> AsyncGenerator[bytes, None]:
        """Yield the tenant's entries after sequence `after` as JSON lines, a batch at a time."""
        await self.append()
        while entries := await self._log.read(tenant, after, BATCH):
            yield b"".join(canonical_json(as_json(entry) | {"hash": entry.hash}) + b"\n" for entry in entries)
            after = entries[-1].sequence

    async def verify(self, tenant: str, known: AuditHead | None = None) -> Finding:
        """Recompute the tenant's chain; `known` is an entry noted earlier that it must still hold."""
        await self.append()
        head = EMPTY
        while entries := await self._log.read(tenant, head.sequence, BATCH):
            for entry in entries:
                problem = _problem(head, entry, known)
                if problem:
                    return Finding(entries=head.sequence, head=head, broken_at=head.sequence + 1, problem=problem)
                head = AuditHead(sequence=entry.sequence, hash=entry.hash)
        written = await self._log.head(tenant)
        if known is not None and known.sequence > head.sequence:
            problem = f"the chain ends at {head.sequence}, but entry {known.sequence} was noted"
        # An append between reading the last batch and the head makes the head newer, never the chain.
        elif written.sequence < head.sequence or (written.sequence == head.sequence and written.hash != head.hash):
            problem = "the noted head is not the end of the chain"
        elif written.sequence > head.sequence and not await self._log.read(tenant, head.sequence, 1):
            problem = f"the chain ends at {head.sequence}, but its head says {written.sequence}"
        else:
            return Finding(entries=head.sequence, head=head)
        return Finding(entries=head.sequence, head=head, broken_at=head.sequence + 1, problem=problem)


def _problem(head: AuditHead, entry: AuditEntry, known: AuditHead | None) -> str:
    if entry.sequence != head.sequence + 1:
        return f"entry {head.sequence + 1} is missing"
    if entry.previous_hash != head.hash:
        return f"entry {entry.sequence} does not follow the one before it"
    if entry.hash != entry_hash(entry):
        return f"entry {entry.sequence} was changed"
    if known is not None and known.sequence == entry.sequence and known.hash != entry.hash:
        return f"entry {entry.sequence} is not the one that was noted; the chain was written anew"
    return ""
