"""Puts the gateway together: the only module that knows every concrete part."""

from __future__ import annotations

import asyncio
import logging

import grpc
import httpx

from services.chassis import names
from services.chassis.database import database_url, migrate, open_engine
from services.chassis.platform import Platform, suite_version
from services.chassis.serve import Service
from services.gateway.adapters.argon2_hasher import Argon2Hasher
from services.gateway.adapters.jwks import JwksVerifier, JwtRules
from services.gateway.adapters.sql_keys import SqlKeys
from services.gateway.app import create_app, enclosed
from services.gateway.auth import Authenticator, CredentialVerifier
from services.gateway.backends import connect
from services.gateway.background import Background
from services.gateway.credentials import KeyVerifier, Lapses
from services.gateway.dependencies import Parts
from services.gateway.keys import Keys
from services.gateway.ratelimit import RateLimiter
from services.gateway.server import HttpServer
from services.gateway.settings import Settings
from services.gateway.streams import RunStreams

log = logging.getLogger(__name__)
MIGRATIONS = "services.gateway:migrations"
CLOSE_GRACE = 2.0


class Gateway:
    """The assembled gateway: an HTTP server over channels to the other services, and the keys."""

    def __init__(self, settings: Settings, platform: Platform) -> None:
        self._settings = settings
        self._channels = {
            "orchestrator": platform.channel(settings.orchestrator_target),
            "retrieval": platform.channel(settings.retrieval_target),
            "approval": platform.channel(settings.approval_target),
            "sandbox": platform.channel(settings.sandbox_target),
        }
        self._engine = open_engine(database_url(settings.database_url, settings.data_dir, "gateway"))
        self._watch: asyncio.Task[None] | None = None
        store, hasher, background = SqlKeys(self._engine), Argon2Hasher(), Background()
        self.lapses = Lapses(store, platform.clock)
        backends = connect(self._channels)
        verifiers: list[CredentialVerifier] = [
            KeyVerifier(store, hasher, self.lapses, platform.clock, background, settings.key_check)
        ]
        if settings.jwt_issuer:
            verifiers.append(_jwks(settings, platform, self.lapses))
        self.parts = Parts(
            settings=settings,
            backends=backends,
            streams=RunStreams(backends.runs, platform.signer, background),
            authenticator=Authenticator(
                verifiers, local_without_key=settings.local_without_key, local_hosts=settings.local_hosts
            ),
            keys=Keys(store, hasher, platform.clock),
            limiter=RateLimiter(settings.requests_per_minute, platform.clock),
            signer=platform.signer,
            clock=platform.clock,
            ids=platform.ids,
            background=background,
        )
        self.app = create_app(self.parts, suite_version())
        self.http = HttpServer(enclosed(self.app, self.parts, platform.telemetry), settings.listen, settings.grace)

    async def start(self) -> None:
        """Bring the database up to date and serve; ready on return."""
        await migrate(self._engine, MIGRATIONS)
        self._watch = asyncio.create_task(self.lapses.watch(self._settings.key_check), name="lapses")
        await self.http.start()
        log.info("serving", extra={"event": names.EVENT_SERVICE_SERVING, "address": self.http.address})

    async def drain(self) -> None:
        """Accept nothing more and end open streams; their clients watch again elsewhere."""
        self.parts.draining.set()
        await self.http.stop()

    async def close(self) -> None:
        """Release everything."""
        await self.http.stop()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self.parts.background.settle(CLOSE_GRACE)
        for channel in self._channels.values():
            await channel.close()
        await self._engine.dispose()


def _jwks(settings: Settings, platform: Platform, lapses: Lapses) -> JwksVerifier:
    rules = JwtRules(
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        algorithm=settings.jwt_algorithm,
        tenant_claim=settings.jwt_tenant_claim,
        scopes_claim=settings.jwt_scopes_claim,
        groups_claim=settings.jwt_groups_claim,
    )
    return JwksVerifier(rules, settings.jwt_jwks_url, lapses, platform.clock, lambda: httpx.AsyncClient(timeout=10))


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
