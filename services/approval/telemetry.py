"""Counts and times what becomes of records, by wrapping the store that every one of them passes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from services.approval.domain import AllowRule, Approval, Change, State
from services.approval.ports import Approvals, Filter, Place
from services.chassis import names
from services.chassis.telemetry import Telemetry

log = logging.getLogger(__name__)


class MeasuredApprovals:
    """`Approvals` that tells metrics and the log about each settled record."""

    def __init__(self, inner: Approvals, telemetry: Telemetry) -> None:
        self._inner = inner
        self._outcomes = telemetry.counter(__name__, names.APPROVALS)
        self._waits = telemetry.histogram(__name__, names.APPROVAL_DECISION_DURATION)
        self._pending = telemetry.up_down_counter(__name__, names.APPROVALS_PENDING)
        self._last_pending = 0

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

    async def count_pending(self) -> int:
        return await self._inner.count_pending()

    async def observe_pending(self) -> None:
        """Set the gauge to what the database says: every replica tells the whole, so take the largest, not the sum."""
        pending = await self._inner.count_pending()
        self._pending.add(pending - self._last_pending)
        self._last_pending = pending

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
