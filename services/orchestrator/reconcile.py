"""Who wakes a run: decisions and expiries for parked ones, take-over for those whose owner died.

The watch of the approval service is a hint; the truth is the loop over what is parked. A run is claimed by lease, so a
decision wakes it exactly once however many replicas heard of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from services.chassis.errors import ServiceError
from services.chassis.identity import Principal
from services.orchestrator.domain.run import KeyEnded, Run, RunState
from services.orchestrator.domain.usage import QuotaExceeded
from services.orchestrator.journal.ports import RunStore
from services.orchestrator.ports import ApprovalRecord, Approvals, RecordState, Standing
from services.orchestrator.workforce import Workforce

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSettings:
    """How often, in seconds, parked and orphaned runs are looked at without a hint, and how many at once."""

    parked_every: float = 2.0
    orphans_every: float = 1.0
    page: int = 200


class Reconciler:
    """Keeps every run going that can go on."""

    def __init__(
        self,
        *,
        store: RunStore,
        approvals: Approvals,
        standing: Standing,
        workforce: Workforce,
        service: Principal,
        settings: ReconcileSettings,
        reader: int,
    ) -> None:
        self._store = store
        self._approvals = approvals
        self._standing = standing
        self._workforce = workforce
        self._service = service
        self._settings = settings
        self._reader = reader
        self._hints: asyncio.Queue[str] = asyncio.Queue(maxsize=10_000)

    def hint(self, run_id: str) -> None:
        """Look at a run soon; a full queue drops the hint, since the loop looks at all of them anyway."""
        if not self._hints.full():
            self._hints.put_nowait(run_id)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._follow_hints())
            group.create_task(self._every(self._settings.parked_every, self._look_at_parked))
            group.create_task(self._every(self._settings.orphans_every, self._take_up_orphans))

    async def _listen(self) -> None:
        async for run_id in self._approvals.changes():
            # Whoever leads the run here looks at its requests himself.
            if not self._workforce.heard(run_id):
                self.hint(run_id)

    async def _follow_hints(self) -> None:
        while True:
            run_id = await self._hints.get()
            try:
                await self._wake_if_decided([await self._store.find(run_id)])
            except ServiceError as error:
                _log.debug("hint not followed: %s", error, extra={"run_id": run_id})
            except Exception:  # noqa: BLE001 - the loop outlives every failure
                _log.exception("hint not followed", extra={"run_id": run_id})

    async def _every(self, seconds: float, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await look()
            except ServiceError as error:
                _log.warning("reconciling failed and is tried again: %s", error)
            except Exception:  # noqa: BLE001 - the loop outlives every failure
                _log.exception("reconciling failed and is tried again")
            await asyncio.sleep(seconds)

    async def _look_at_parked(self) -> None:
        after = ""
        while page := await self._store.parked(limit=self._settings.page, after=after):
            await self._wake_if_decided(page)
            after = page[-1].run_id

    async def _wake_if_decided(self, runs: Sequence[Run]) -> None:
        parked = [run for run in runs if run.state is RunState.PAUSED]
        for run in parked:
            if run.cancel_requested_by:
                await self._workforce.cancel_parked(run.run_id, run.cancel_requested_by)
        wanted = {p.approval_id: run.run_id for run in parked for p in run.pending if p.approval_id}
        if not wanted:
            return
        records = await self._approvals.get(self._service, list(wanted))
        # A record that does not exist was never received: the run asks again when it is woken.
        decided = {
            run_id
            for approval_id, run_id in wanted.items()
            if approval_id not in records or records[approval_id].state is not RecordState.PENDING
        }
        for run in parked:
            if run.run_id not in decided:
                continue
            states = [records[p.approval_id].state for p in run.pending if p.approval_id in records]
            expired = all(state is RecordState.EXPIRED for state in states)
            await self._wake(run, "expiry" if expired else "decision", records)

    async def _wake(self, run: Run, cause: str, records: Mapping[str, ApprovalRecord]) -> None:
        """Lead a run on as its own principal, if that one may still run anything."""
        try:
            await self._standing.check(run)
        except KeyEnded as error:
            await self._workforce.fail_parked(run.run_id, error.reason, error.message)
        except QuotaExceeded as error:
            # Its decision stands; it goes on when there is quota again.
            _log.info("run stays parked: %s", error.message, extra={"run_id": run.run_id})
        else:
            await self._workforce.take_up(run.run_id, cause, records)

    async def _take_up_orphans(self) -> None:
        for run in await self._store.orphans(limit=self._settings.page, reader=self._reader):
            await self._workforce.take_up(run.run_id, "recovery")
