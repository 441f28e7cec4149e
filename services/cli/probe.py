"""Whether a service of the suite serves."""

from __future__ import annotations

import asyncio

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVING = "SERVING"
POLL = 0.03


async def wait_for_grpc(address: str) -> str:
    """Return the health of the service at `address` once it tells one that lasts: SERVING at once, else after 1 s."""
    patience = 1.0
    async with grpc.aio.insecure_channel(address, options=[("grpc.initial_reconnect_backoff_ms", 100)]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            try:
                reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=2.0, wait_for_ready=True)
            except grpc.aio.AioRpcError:
                continue
            status: str = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
            if status == SERVING or patience <= 0:
                return status
            patience -= POLL
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
