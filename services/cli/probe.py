"""Whether the gateway serves."""

from __future__ import annotations

import asyncio

import httpx

POLL = 0.03


async def wait_for_http(url: str) -> bool:
    """Return once the gateway at `url` says that everything required behind it serves."""
    async with httpx.AsyncClient(base_url=url, timeout=5.0, trust_env=False) as client:
        while True:
            try:
                reply = await client.get("/readyz")
            except httpx.TransportError:
                await asyncio.sleep(POLL)
                continue
            if reply.status_code == httpx.codes.OK:
                return True
            await asyncio.sleep(POLL)
