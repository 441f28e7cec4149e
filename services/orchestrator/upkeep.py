"""Retention: events, runs and files whose time is over are deleted in the background, a page at a time."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from services.chassis.clock import Clock
from services.orchestrator.artifacts import Artifacts
from services.orchestrator.journal.ports import RunStore
from services.orchestrator.ports import Standing, UsageKeeper

_log = logging.getLogger(__name__)
EVERY_SECONDS = 300.0
PAGE = 100


class Upkeep:
    """Deletes what is no longer kept. Conversations are never touched."""

    def __init__(
        self,
        *,
        store: RunStore,
        artifacts: Artifacts,
        usage: UsageKeeper,
        standing: Standing,
        clock: Clock,
        events_lifetime: timedelta,
        runs_lifetime: timedelta,
        usage_lifetime: timedelta,
    ) -> None:
        self._store = store
        self._usage = usage
        self._standing = standing
        self._usage_lifetime = usage_lifetime
        self._artifacts = artifacts
        self._clock = clock
        self._events_lifetime = events_lifetime
        self._runs_lifetime = runs_lifetime

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            try:
                await self.sweep()
            except Exception:  # noqa: BLE001 - the loop outlives every failure
                _log.exception("the sweep failed and is tried again")
            await asyncio.sleep(EVERY_SECONDS)

    async def sweep(self) -> None:
        """Delete everything whose time is over."""
        now = self._clock.now()
        while await self._store.prune_events(now - self._events_lifetime, limit=PAGE):
            pass
        while await self._store.delete_runs(now - self._runs_lifetime, limit=PAGE):
            pass
        while await self._artifacts.sweep():
            pass
        await self._usage.forget(now - self._usage_lifetime)
        await self._standing.forget_keys(now - self._runs_lifetime)
