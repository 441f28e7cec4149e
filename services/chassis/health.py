"""Health as `grpc.health.v1` tells it, kept true to what a service says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from grpc_health.v1 import health, health_pb2

INTERVAL = 1.0


class HealthMonitor:
    """Keeps `grpc.health.v1` true to what the service says of itself."""

    def __init__(self, services: Sequence[str], serving: Callable[[], bool]) -> None:
        self.servicer = health.aio.HealthServicer()
        self._services = (health.OVERALL_HEALTH, *services)
        self._serving = serving
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Tell what the service says now, and go on telling it."""
        await self._set(serving=self._serving())
        self._task = asyncio.create_task(self._watch(), name="health")

    async def stop(self) -> None:
        """Tell NOT_SERVING for good."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.servicer.enter_graceful_shutdown()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            await self._set(serving=self._serving())

    async def _set(self, *, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in self._services:
            await self.servicer.set(name, status)
