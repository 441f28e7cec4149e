"""Admission: so many runs at once, a bounded queue, and tenants served in turn."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass

from services.chassis.errors import Overloaded


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLimits:
    """Runs at once, of all and of one tenant, and how many may wait. `retry_after` seconds are told beyond that."""

    running: int = 512
    per_tenant: int = 384
    waiting: int = 512
    retry_after: float = 2.0


class FairSlots:
    """Slots for working runs. Waiting tenants are served round-robin, each one's runs in order."""

    def __init__(self, limits: SlotLimits) -> None:
        self._limits = limits
        self._running: dict[str, int] = {}
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def running(self) -> int:
        """Slots in use."""
        return sum(self._running.values())

    @property
    def waiting(self) -> int:
        """Runs in the queue."""
        return sum(len(queue) for queue in self._queues.values())

    def check(self) -> None:
        """Raise Overloaded when not even the queue has room."""
        if self.running >= self._limits.running and self.waiting >= self._limits.waiting:
            raise Overloaded(
                f"{self.running} runs work and {self.waiting} wait; try again in {self._limits.retry_after:g} s",
                retry_after=self._limits.retry_after,
            )

    def would_wait(self, tenant: str) -> bool:
        """Whether `acquire` would have to wait now."""
        # Others may queue for their own tenant's cap; that holds nobody else back.
        return tenant in self._queues or not self._has_room(tenant)

    async def acquire(self, tenant: str) -> None:
        """Wait for a slot of `tenant`."""
        if not self.would_wait(tenant):
            self._take(tenant)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(tenant, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(tenant)  # the slot came together with the cancellation
            else:
                self._leave(tenant, turn)
            raise

    def release(self, tenant: str) -> None:
        """Give a slot back and serve the next in turn."""
        left = self._running[tenant] - 1
        if left:
            self._running[tenant] = left
        else:
            del self._running[tenant]
        self._serve()

    def _serve(self) -> None:
        for tenant in list(self._queues):
            if not self._has_room(tenant):
                continue
            queue = self._queues[tenant]
            turn = queue.popleft()
            if queue:
                self._queues.move_to_end(tenant)
            else:
                del self._queues[tenant]
            self._take(tenant)
            turn.set_result(None)
            if self.running >= self._limits.running:
                return

    def _leave(self, tenant: str, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(tenant)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[tenant]
        self._serve()

    def _has_room(self, tenant: str) -> bool:
        return self.running < self._limits.running and self._running.get(tenant, 0) < self._limits.per_tenant

    def _take(self, tenant: str) -> None:
        self._running[tenant] = self._running.get(tenant, 0) + 1
