"""Puts the gateway together: the only module that knows every concrete part."""

from __future__ import annotations

import logging

import grpc

from services.chassis import names
from services.chassis.platform import Platform, suite_version
from services.chassis.serve import Service
from services.gateway.app import create_app
from services.gateway.auth import Authenticator
from services.gateway.backends import connect
from services.gateway.dependencies import Parts
from services.gateway.ratelimit import RateLimiter
from services.gateway.server import HttpServer
from services.gateway.settings import Settings
from services.gateway.streams import RunStreams

log = logging.getLogger(__name__)
CLOSE_GRACE = 2.0


class Gateway:
    """The assembled gateway: an HTTP server over channels to the other services."""

    def __init__(self, settings: Settings, platform: Platform) -> None:
        self._channels = {
            "orchestrator": platform.channel(settings.orchestrator_target),
            "retrieval": platform.channel(settings.retrieval_target),
            "approval": platform.channel(settings.approval_target),
            "sandbox": platform.channel(settings.sandbox_target),
        }
        backends = connect(self._channels)
        self.parts = Parts(
            settings=settings,
            backends=backends,
            streams=RunStreams(backends.runs, platform.signer),
            authenticator=Authenticator(
                [], local_without_key=settings.local_without_key, local_hosts=settings.local_hosts
            ),
            limiter=RateLimiter(settings.requests_per_minute, platform.clock),
            signer=platform.signer,
            clock=platform.clock,
            ids=platform.ids,
        )
        self.app = create_app(self.parts, platform.telemetry, suite_version())
        self.http = HttpServer(self.app, settings.listen, settings.grace)

    async def start(self) -> None:
        """Serve; ready on return."""
        await self.http.start()
        log.info("serving", extra={"event": names.EVENT_SERVICE_SERVING, "address": self.http.address})

    async def drain(self) -> None:
        """Accept nothing more and end open streams; their clients watch again elsewhere."""
        self.parts.draining.set()
        await self.http.stop()

    async def close(self) -> None:
        """Release everything."""
        await self.http.stop()
        await self.parts.background.settle(CLOSE_GRACE)
        for channel in self._channels.values():
            await channel.close()


async def build(settings: Settings, platform: Platform) -> Service:
    """Return the gateway as a service without gRPC of its own."""
    gateway = Gateway(settings, platform)
    return Service(
        name="gateway",
        register=_no_rpcs,
        grpc_services=(),
        start=gateway.start,
        drain=gateway.drain,
        close=gateway.close,
    )


def _no_rpcs(server: grpc.aio.Server) -> None:
    """The gateway serves HTTP only."""
