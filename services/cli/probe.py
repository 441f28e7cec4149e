"""Whether a service of the suite serves."""

from __future__ import annotations

import asyncio

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVING = "SERVING"
POLL = 0.03


async def wait_for_grpc(address: str, *, may_not_serve: bool = False) -> str:
    """Return SERVING once the service at `address` says so; NOT_SERVING will do for one that may not serve here."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.initial_reconnect_backoff_ms", 100)]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            try:
                reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=2.0, wait_for_ready=True)
            except grpc.aio.AioRpcError:
                continue
            status: str = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
            if status == SERVING or may_not_serve:
                return status
            await asyncio.sleep(POLL)


async def wait_for_http(url: str) -> str:
    """Return SERVING once the gateway at `url` says that everything required behind it serves."""
    async with httpx.AsyncClient(base_url=url, timeout=5.0, trust_env=False) as client:
        while True:
            try:
                reply = await client.get("/readyz")
            except httpx.TransportError:
                await asyncio.sleep(POLL)
                continue
            if reply.status_code == httpx.codes.OK:
                return SERVING
            await asyncio.sleep(POLL)
