"""Mutual TLS and signed identity between the real services: every wrong credential, at each of them, and its status.

The gateway serves HTTP and takes keys; what it is told when its own certificate is wrong is what each peer tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import httpx
import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import Encoding

from proctor.approval.v1 import approval_service_pb2 as approval
from proctor.approval.v1.approval_service_pb2_grpc import ApprovalServiceStub
from proctor.orchestrator.v1 import run_service_pb2 as runs
from proctor.orchestrator.v1.run_service_pb2_grpc import RunServiceStub
from proctor.retrieval.v1 import source_service_pb2 as sources
from proctor.retrieval.v1.source_service_pb2_grpc import SourceServiceStub
from proctor.sandbox.v1 import sandbox_service_pb2 as sandbox
from proctor.sandbox.v1.sandbox_service_pb2_grpc import SandboxServiceStub
from services.chassis.channel import Tls
from services.chassis.identity import IdentitySigner
from services.chassis.platform import Platform
from services.chassis.serve import RunningServer, launch
from services.chassis.settings import load
from services.gateway.bootstrap import Gateway
from services.gateway.settings import Settings as GatewaySettings
from tests.support.certificates import DAY, Authority, make_authority
from tests.support.clock import FakeClock
from tests.support.platform import KEY, principal, test_platform
from tests.support.suite import GRPC_SERVICES, environment, short_folder

pytestmark = pytest.mark.asyncio(loop_scope="module")
Metadata = tuple[tuple[str, str], ...]
OK, UNAVAILABLE, UNAUTHENTICATED = (
    grpc.StatusCode.OK,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNAUTHENTICATED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """The four gRPC services behind mutual TLS, by name; `folder` holds certificates of `authority`."""

    folder: Path
    authority: Authority
    platform: Platform
    addresses: Mapping[str, str]
    variables: Mapping[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded() -> AsyncIterator[Guarded]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(short_folder())
        authority = make_authority("authority", folder)
        platform = replace(test_platform(), tls=authority.issue("server"))
        variables = environment(folder, "", "")
        addresses = {}
        for name in GRPC_SERVICES:
            variables[f"PROCTOR_{name.upper()}_LISTEN"] = "127.0.0.1:0"
            running = await launch(name, platform, variables)
            stack.push_async_callback(running.stop, 0.5)
            assert isinstance(running, RunningServer)
            addresses[name] = running.address
            variables[f"PROCTOR_GATEWAY_{name.upper()}_TARGET"] = running.address
            if name != "orchestrator":
                variables[f"PROCTOR_ORCHESTRATOR_{name.upper()}_TARGET"] = running.address
        yield Guarded(folder=folder, authority=authority, platform=platform, addresses=addresses, variables=variables)


async def ask(name: str, channel: grpc.aio.Channel, metadata: Metadata) -> grpc.StatusCode:
    """Make the most harmless call of a service and return its status."""
    calls: dict[str, Any] = {
        "approval": (lambda: ApprovalServiceStub(channel).ListApprovals, approval.ListApprovalsRequest()),
        "sandbox": (lambda: SandboxServiceStub(channel).GetIsolation, sandbox.GetIsolationRequest()),
        "retrieval": (lambda: SourceServiceStub(channel).ListSources, sources.ListSourcesRequest()),
        "orchestrator": (lambda: RunServiceStub(channel).ListRuns, runs.ListRunsRequest()),
    }
    method, request = calls[name]
    try:
        await method()(request, metadata=metadata, timeout=10)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return OK


async def statuses(guarded: Guarded, tls: Tls | None, metadata: Metadata) -> dict[str, grpc.StatusCode]:
    """Ask every service with one credential."""

    async def one(name: str) -> grpc.StatusCode:
        channel = replace(guarded.platform, tls=tls).channel(guarded.addresses[name])
        try:
            return await ask(name, channel, metadata)
        finally:
            await channel.close()

    found = await asyncio.gather(*(one(name) for name in GRPC_SERVICES))
    return dict(zip(GRPC_SERVICES, found, strict=True))


def certificate(guarded: Guarded, which: str) -> Tls | None:
    match which:
        case "right":
            return guarded.authority.issue("client")
        case "none":
            return None
        case "expired":
            return guarded.authority.issue("expired", lifetime=-DAY)
        case "of another authority":
            stranger = make_authority("stranger", guarded.folder).issue("strange-client")
            return replace(stranger, authority=guarded.folder / "authority.crt")
        case _:
            # It trusts another authority, and so does not believe the server.
            return make_authority("other", guarded.folder).issue("other-client")


def token(guarded: Guarded, which: str) -> Metadata:
    clock = guarded.platform.clock
    claims = {"iss": "proctor", "aud": "proctor", "sub": "ann", "tenant": "local", "exp": 4_000_000_000}
    match which:
        case "right":
            return guarded.platform.signer.metadata(principal())
        case "none":
            return ()
        case "forged":
            return IdentitySigner("forged-" + "0" * 32, clock).metadata(principal())
        case "expired":
            past = FakeClock(clock.now() - timedelta(hours=1))
            return IdentitySigner(KEY, past).metadata(principal())
        case "unsigned":
            return (("authorization", f"Bearer {jwt.encode(claims, '', algorithm='none')}"),)
        case "for others":
            return (("authorization", f"Bearer {jwt.encode(claims | {'aud': 'another'}, KEY, algorithm='HS256')}"),)
        case _:
            return (("authorization", "Bearer not.a.token"),)


@pytest.mark.parametrize(
    ("shown", "said", "expected"),
    [
        ("right", "right", OK),
        ("none", "right", UNAVAILABLE),
        ("expired", "right", UNAVAILABLE),
        ("of another authority", "right", UNAVAILABLE),
        ("trusting another authority", "right", UNAVAILABLE),
        ("right", "none", UNAUTHENTICATED),
        ("right", "forged", UNAUTHENTICATED),
        ("right", "expired", UNAUTHENTICATED),
        ("right", "unsigned", UNAUTHENTICATED),
        ("right", "for others", UNAUTHENTICATED),
        ("right", "no token at all", UNAUTHENTICATED),
    ],
)
async def test_a_certificate_and_a_token_are_both_needed(
    guarded: Guarded, shown: str, said: str, expected: grpc.StatusCode
) -> None:
    found = await statuses(guarded, certificate(guarded, shown), token(guarded, said))
    assert found == dict.fromkeys(GRPC_SERVICES, expected)


async def test_trust_in_the_server_is_not_enough_without_a_certificate_of_ones_own(guarded: Guarded) -> None:
    one_sided = grpc.ssl_channel_credentials(guarded.authority.certificate.public_bytes(Encoding.PEM))
    for name, address in guarded.addresses.items():
        async with grpc.aio.secure_channel(address, one_sided) as channel:
            assert await ask(name, channel, token(guarded, "right")) is UNAVAILABLE


async def test_a_name_that_is_not_the_servers_is_refused(guarded: Guarded) -> None:
    tls = guarded.authority.issue("client")
    for name, address in guarded.addresses.items():
        options = [("grpc.ssl_target_name_override", "another.host")]
        async with grpc.aio.secure_channel(address, tls.channel_credentials(), options) as channel:
            assert await ask(name, channel, token(guarded, "right")) is UNAVAILABLE


@pytest.mark.parametrize(("shown", "status"), [("right", 200), ("of another authority", 503)])
async def test_the_gateway_shows_its_certificate_and_says_when_it_is_not_taken(
    guarded: Guarded, shown: str, status: int
) -> None:
    platform = replace(guarded.platform, tls=certificate(guarded, shown))
    gateway = Gateway(load(GatewaySettings, "gateway", guarded.variables), platform)
    await gateway.start()
    try:
        async with httpx.AsyncClient(base_url=gateway.http.address, timeout=30) as http:
            reply = await http.get("/v1/sources")
            ready = await http.get("/readyz")
        assert reply.status_code == status, reply.text
        assert ready.status_code == status
    finally:
        await gateway.close()
