"""What the orchestrator believes of the sandbox, and for how long."""

from __future__ import annotations

import grpc

from proctor.sandbox.v1 import sandbox_service_pb2 as pb
from proctor.sandbox.v1 import sandbox_service_pb2_grpc as sandbox_grpc
from services.chassis.identity import Principal
from services.orchestrator.adapters.sandbox_grpc import ISOLATION_FRESH, SILENCE_FRESH, GrpcSandbox
from tests.support.clock import FakeClock
from tests.support.platform import test_platform
from tests.support.servers import socket_address


class Isolating(sandbox_grpc.SandboxServiceServicer):
    """Counts how often it is asked."""

    asked = 0

    async def GetIsolation(self, request: pb.GetIsolationRequest, context: object) -> pb.GetIsolationResponse:
        self.asked += 1
        return pb.GetIsolationResponse(safe=True, packages=["numpy"])


async def test_a_sandbox_that_is_away_is_not_asked_by_every_run_and_found_again_soon() -> None:
    clock, platform, service = FakeClock(), test_platform(), Isolating()  # type: ignore[abstract]
    async with socket_address() as address:
        channel = platform.channel(address)
        nobody = Principal(tenant="", user="orchestrator", scopes=frozenset())
        sandbox = GrpcSandbox(channel, platform.signer, None, clock, nobody)  # type: ignore[arg-type]  # stores nothing
        away = await sandbox.isolation()
        assert not away.safe
        assert "does not answer" in away.explanation

        server = grpc.aio.server()
        sandbox_grpc.add_SandboxServiceServicer_to_server(service, server)
        server.add_insecure_port(address)
        await server.start()
        await channel.channel_ready()
        clock.advance(SILENCE_FRESH - 0.1)
        assert await sandbox.isolation() == away
        clock.advance(0.1)
        assert (await sandbox.isolation()).packages == ("numpy",)
        clock.advance(ISOLATION_FRESH - 0.1)
        assert (await sandbox.isolation()).safe
        assert service.asked == 1
        clock.advance(0.1)
        assert (await sandbox.isolation()).safe
        assert service.asked == 2
        await channel.close()
        await server.stop(0)
