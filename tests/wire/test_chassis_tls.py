"""Mutual TLS between hosts: who may speak to a service, and what everybody else is told."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from proctor.approval.v1 import approval_service_pb2 as pb
from proctor.approval.v1 import approval_service_pb2_grpc as stubs
from services.chassis.channel import Tls
from services.chassis.identity import IdentitySigner
from services.chassis.platform import Platform
from services.chassis.serve import start_server
from tests.support.certificates import DAY, Authority, make_authority
from tests.support.platform import principal, test_platform
from tests.support.probe import probe

DECIDE = pb.DecideRequest(approval_id="a1", deny=pb.DenyDecision())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority("authority", tmp_path)


@asynccontextmanager
async def served(tls: Tls) -> AsyncGenerator[str, None]:
    server = await start_server(probe(), "127.0.0.1:0", replace(test_platform(), tls=tls))
    try:
        yield server.address
    finally:
        await server.stop(0)


async def decide(platform: Platform, address: str, signer: IdentitySigner | None = None) -> grpc.StatusCode:
    channel = platform.channel(address)
    try:
        metadata = (signer or platform.signer).metadata(principal())
        await stubs.ApprovalServiceStub(channel).Decide(DECIDE, metadata=metadata, timeout=5)
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        await channel.close()
    return grpc.StatusCode.OK


async def test_a_peer_with_a_certificate_of_the_same_authority_is_served(authority: Authority) -> None:
    async with served(authority.issue("server")) as address:
        code = await decide(replace(test_platform(), tls=authority.issue("client")), address)
    assert code is grpc.StatusCode.OK


async def test_a_certificate_is_not_an_identity(authority: Authority) -> None:
    platform = replace(test_platform(), tls=authority.issue("client"))
    forged = IdentitySigner("forged-" + "0" * 32, platform.clock)
    async with served(authority.issue("server")) as address:
        assert await decide(platform, address, forged) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_peer_of_another_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    stranger = make_authority("stranger", tmp_path).issue("client")
    async with served(authority.issue("server")) as address:
        trusting = replace(stranger, authority=tmp_path / "authority.crt")
        assert await decide(replace(test_platform(), tls=trusting), address) is grpc.StatusCode.UNAVAILABLE
        assert await decide(replace(test_platform(), tls=stranger), address) is grpc.StatusCode.UNAVAILABLE


async def test_an_expired_certificate_is_refused_on_either_side(authority: Authority) -> None:
    expired = authority.issue("expired", lifetime=-DAY)
    async with served(authority.issue("server")) as address:
        assert await decide(replace(test_platform(), tls=expired), address) is grpc.StatusCode.UNAVAILABLE
    async with served(expired) as address:
        client = replace(test_platform(), tls=authority.issue("client"))
        assert await decide(client, address) is grpc.StatusCode.UNAVAILABLE


async def test_a_server_with_another_name_is_refused(authority: Authority) -> None:
    async with served(authority.issue("server", host="another.host")) as address:
        client = replace(test_platform(), tls=authority.issue("client"))
        assert await decide(client, address) is grpc.StatusCode.UNAVAILABLE


async def test_a_peer_without_a_certificate_is_refused(authority: Authority) -> None:
    async with served(authority.issue("server")) as address:
        assert await decide(test_platform(), address) is grpc.StatusCode.UNAVAILABLE
        one_sided = grpc.ssl_channel_credentials(authority.certificate.public_bytes(Encoding.PEM))
        async with grpc.aio.secure_channel(address, one_sided) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stubs.ApprovalServiceStub(channel).Decide(DECIDE, timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
