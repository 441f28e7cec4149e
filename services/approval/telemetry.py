"""Counts and times what becomes of records, by wrapping the store that every one of them passes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from services.approval.domain import AllowRule, Approval, Change, State
from services.approval.ports import Approvals, Filter, Place, Waiting
from services.chassis import names
from services.chassis.clock import Clock
from services.chassis.telemetry import Telemetry

log = logging.getLogger(__name__)


class MeasuredApprovals:
    """`Approvals` that tells metrics and the log about each settled record."""

    def __init__(self, inner: Approvals, telemetry: Telemetry, clock: Clock) -> None:
        self._inner = inner
        self._outcomes = telemetry.counter(__name__, names.APPROVALS)
        self._waits = telemetry.histogram(__name__, names.APPROVAL_DECISION_DURATION)
        self._pending = telemetry.up_down_counter(__name__, names.APPROVALS_PENDING)
        self._oldest = telemetry.up_down_counter(__name__, names.APPROVALS_OLDEST_AGE)
        self._clock = clock
        self._told = (0, 0)

    async def add(self, approval: Approval, changes: Sequence[Change]) -> bool:
        added = await self._inner.add(approval, changes)
        if added and approval.state is not State.PENDING:
            self._settled(approval)
        return added

    async def find(self, tenant: str | None, ids: Sequence[str]) -> list[Approval]:
        return await self._inner.find(tenant, ids)

    async def replace(
        self, before: Approval, after: Approval, changes: Sequence[Change], rule: AllowRule | None = None
    ) -> bool:
        replaced = await self._inner.replace(before, after, changes, rule)
        if replaced and after.state is not State.PENDING:
            self._settled(after)
        return replaced

    async def expire(
        self, now: datetime, limit: int, *, tenant: str | None = None, ids: Sequence[str] | None = None
    ) -> list[Approval]:
        expired = await self._inner.expire(now, limit, tenant=tenant, ids=ids)
        for approval in expired:
            self._settled(approval)
        return expired

    async def page(self, wanted: Filter, after: Place | None, limit: int) -> list[Approval]:
        return await self._inner.page(wanted, after, limit)

    async def waiting(self) -> Waiting:
        return await self._inner.waiting()

    async def observe_waiting(self) -> None:
        """Set the gauges to what the database says: every replica tells the whole, so take the largest, not the sum."""
        waiting = await self._inner.waiting()
        age = 0 if waiting.since is None else max(0, int((self._clock.now() - waiting.since).total_seconds()))
        count_before, age_before = self._told
        self._pending.add(waiting.count - count_before)
        self._oldest.add(age - age_before)
        self._told = (waiting.count, age)

    def _settled(self, approval: Approval) -> None:
        labels = {names.APPROVAL_OUTCOME: str(approval.state), names.APPROVAL_KIND: str(approval.kind)}
        self._outcomes.add(1, labels)
        waited = ((approval.decided_at or approval.requested_at) - approval.requested_at).total_seconds()
        self._waits.record(max(waited, 0.0), labels)
        log.info(
            "approval %s",
            approval.state,
            extra={
                "event": names.EVENT_APPROVAL_DECIDED,
                "approval_id": approval.approval_id,
                "run_id": approval.run_id,
                "tool": approval.tool,
                "outcome": str(approval.state),
                "decided_by": approval.decided_by,
                "waited": waited,
            },
        )
