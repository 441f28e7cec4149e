"""Real servers on unix sockets, with every interceptor, for the length of a test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from services.chassis.platform import Platform
from services.chassis.serve import RunningServer, ServerLimits, Service, start_server
from tests.support.platform import test_platform


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running service: a channel to it, where it is, and the platform it stands on."""

    channel: grpc.aio.Channel
    address: str
    platform: Platform
    server: RunningServer

    def __iter__(self) -> AsyncIterator[object]:
        return iter((self.channel, self.platform))  # type: ignore[return-value]  # `channel, platform = served`


@asynccontextmanager
async def socket_address(name: str = "service") -> AsyncIterator[str]:
    """Yield a `unix:` address in a new folder under /tmp: a socket's path may not exceed 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="proctor-", dir="/tmp"))
    try:
        yield f"unix:{folder / name}.sock"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def serve(
    service: Service, *, platform: Platform | None = None, limits: ServerLimits | None = None, grace: float = 1.0
) -> AsyncIterator[Served]:
    """Serve `service` and yield the way to it; it is drained and closed at the end."""
    platform = platform or test_platform()
    async with socket_address(service.name) as address:
        server = await start_server(service, address, platform, limits)
        channel = platform.channel(address, max_request_bytes=service.max_request_bytes)
        try:
            yield Served(channel=channel, address=address, platform=platform, server=server)
        finally:
            await channel.close()
            await server.stop(grace)


async def nothing() -> None:
    """A hook that does nothing."""
