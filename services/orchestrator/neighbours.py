"""The other services as this one sees them: a channel to each, and the adapters over it."""

from __future__ import annotations

from datetime import timedelta

from opentelemetry.trace import Tracer

from services.chassis.identity import Principal
from services.chassis.platform import Platform
from services.orchestrator.adapters.approval_grpc import GrpcApprovals
from services.orchestrator.adapters.embedding_grpc import GrpcEmbedder
from services.orchestrator.adapters.library_grpc import GrpcLibrary, GrpcWeb
from services.orchestrator.adapters.retrieval_grpc import GrpcRetrieval
from services.orchestrator.adapters.sandbox_grpc import GrpcSandbox
from services.orchestrator.adapters.sources_grpc import GrpcSources
from services.orchestrator.artifacts import Artifacts
from services.orchestrator.settings import Settings

# Code and the files that go with it; the sandbox takes 64 MiB of them.
SANDBOX_REQUEST_BYTES = 66 * 1024 * 1024
# The orchestrator itself: an actor without a tenant, which sees the requests of all of them.
SERVICE = Principal(tenant="", user="orchestrator", actor="orchestrator", scopes=frozenset({"*"}))


class Channels:
    """Channels to the other services."""

    def __init__(self, platform: Platform, settings: Settings) -> None:
        self.retrieval = platform.channel(settings.retrieval_target)
        self.sandbox = platform.channel(settings.sandbox_target, max_request_bytes=SANDBOX_REQUEST_BYTES)
        self.approval = platform.channel(settings.approval_target)

    async def close(self) -> None:
        """Close every channel."""
        for channel in (self.retrieval, self.sandbox, self.approval):
            await channel.close()


class Neighbours:
    """What the other services do for runs."""

    def __init__(
        self, channels: Channels, settings: Settings, platform: Platform, artifacts: Artifacts, tracer: Tracer
    ) -> None:
        seconds = settings.retrieval_timeout / timedelta(seconds=1)
        signer, clock = platform.signer, platform.clock
        self.retrieval = GrpcRetrieval(channels.retrieval, signer, tracer, seconds)
        self.library = GrpcLibrary(channels.retrieval, signer, seconds)
        self.web = GrpcWeb(channels.retrieval, signer, SERVICE, clock, seconds)
        self.sources = GrpcSources(channels.retrieval, signer)
        self.embedder = GrpcEmbedder(channels.retrieval, signer, seconds)
        self.sandbox = GrpcSandbox(channels.sandbox, signer, artifacts, clock, SERVICE)
        self.approvals = GrpcApprovals(channels.approval, signer, SERVICE)
