"""Health as `grpc.health.v1` tells it, kept true to what a service says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

INTERVAL = 1.0
POLL = 0.03


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


async def wait_for_health(address: str, *, serving: bool = True) -> bool:
    """Wait until the service at `address` answers, and with `serving` until it is SERVING; returns whether it is."""
    # gRPC's own backoff grows to minutes while a service is still loading.
    backoff = [(f"grpc.{name}_reconnect_backoff_ms", 100) for name in ("initial", "min", "max")]
    async with grpc.aio.insecure_channel(address, options=backoff) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            try:
                reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=2.0, wait_for_ready=True)
            except grpc.aio.AioRpcError:
                continue
            serves: bool = reply.status == health_pb2.HealthCheckResponse.SERVING
            if serves or not serving:
                return serves
            await asyncio.sleep(POLL)
