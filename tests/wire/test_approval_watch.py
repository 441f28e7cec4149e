"""Watching: pending first, then changes, whichever replica took the decision; and webhooks to a real endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import grpc
import pytest

from proctor.approval.v1 import approval_service_pb2 as pb
from services.approval.webhooks import verify
from services.chassis.errors import from_rpc_error
from services.chassis.identity import Principal
from services.chassis.settings import Secret
from tests.support.approval_wire import Remote, changes, serve_approval
from tests.support.approvals import ANN, BOB, EVE, RIVAL
from tests.support.clock import FakeClock

SECRET = "a-secret-that-is-long-enough-to-be-one"
SERVICE = Principal(tenant="", user="orchestrator", actor="orchestrator")
ALIVE = timedelta(milliseconds=50)
APPROVE = {"approve": pb.ApproveDecision()}


@pytest.fixture
async def remote(sqlite_url: str) -> AsyncIterator[Remote]:
    async with serve_approval(sqlite_url, keep_alive=ALIVE) as served:
        yield served


async def test_a_watch_begins_with_what_is_pending_says_so_and_goes_on_with_changes(remote: Remote) -> None:
    await remote.ask(ANN, "a1")
    await remote.ask(ANN, "a2")
    await remote.call(ANN, "Decide", approval_id="a1", **APPROVE)
    async with asyncio.timeout(10):
        stream = remote.watch(ANN)
        assert (await stream.read()).approval.approval_id == "a2"
        assert not (await stream.read()).HasField("approval")
        await remote.ask(ANN, "a3")
        while (record := await changes(stream)).approval_id != "a3":
            pass
        assert record.state == pb.APPROVAL_STATE_PENDING
        await remote.call(ANN, "Decide", approval_id="a2", **APPROVE)
        while (record := await changes(stream)).approval_id != "a2":
            pass
        assert record.state == pb.APPROVAL_STATE_APPROVED
    stream.cancel()


async def test_a_quiet_watch_is_kept_alive(remote: Remote) -> None:
    stream = remote.watch(ANN)
    async with asyncio.timeout(10):
        for _ in range(4):
            assert not (await stream.read()).HasField("approval")
    stream.cancel()


async def test_a_watch_of_one_run_or_of_changes_only_leaves_out_the_rest(remote: Remote) -> None:
    await remote.ask(ANN, "a1", run_id="run1")
    await remote.ask(ANN, "a2", run_id="run2")
    async with asyncio.timeout(10):
        stream = remote.watch(ANN, run_id="run2", changes_only=True)
        assert not (await stream.read()).HasField("approval")
        await remote.call(ANN, "Decide", approval_id="a1", **APPROVE)
        await remote.call(ANN, "Decide", approval_id="a2", **APPROVE)
        while (record := await changes(stream)).state == pb.APPROVAL_STATE_PENDING:
            assert record.approval_id == "a2"
        assert record.approval_id == "a2"
    stream.cancel()


async def test_nobody_sees_what_is_not_his(remote: Remote) -> None:
    strangers = [remote.watch(principal) for principal in (EVE, RIVAL)]
    async with asyncio.timeout(10):
        for stream in strangers:
            await stream.read()
        everything = remote.watch(SERVICE)
        await everything.read()
        await remote.ask(ANN, "a1")
        assert (await changes(everything)).approval_id == "a1"
        for stream in strangers:
            for _ in range(3):
                assert not (await stream.read()).HasField("approval")
    for stream in (*strangers, everything):
        stream.cancel()


async def test_an_expiry_is_seen_although_nobody_asks(sqlite_url: str) -> None:
    clock = FakeClock()
    async with serve_approval(sqlite_url, clock=clock, keep_alive=ALIVE) as remote:
        await remote.ask(ANN)
        stream = remote.watch(ANN)
        async with asyncio.timeout(10):
            await changes(stream)
            clock.advance(120)
            while (record := await changes(stream)).state == pb.APPROVAL_STATE_PENDING:
                pass
        assert record.state == pb.APPROVAL_STATE_EXPIRED
        stream.cancel()


async def test_a_drain_ends_watches_with_unavailable(sqlite_url: str) -> None:
    async with serve_approval(sqlite_url) as remote:
        stream = remote.watch(ANN)
        await stream.read()
        stopping = asyncio.create_task(remote.served.server.stop(5))
        async with asyncio.timeout(10):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stream.read()
        assert from_rpc_error(caught.value).reason == "UNAVAILABLE"
        await stopping


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_every_replica_sees_a_decision_at_once(kind: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue(f"{kind}_url")
    # On PostgreSQL the poll is switched off in effect: NOTIFY alone must carry it.
    poll = timedelta(milliseconds=200) if kind == "sqlite" else timedelta(hours=1)
    async with (
        serve_approval(url, poll_interval=poll) as one,
        serve_approval(url, poll_interval=poll, keep_alive=ALIVE) as other,
    ):
        await one.ask(ANN)
        stream = other.watch(BOB)
        async with asyncio.timeout(20):
            await changes(stream)
            await stream.read()
            if kind == "postgres":
                await listening(one, stream)
            # A second on an idle machine; on PostgreSQL the poll that would otherwise bring it is an hour away.
            async with asyncio.timeout(10):
                await one.call(BOB, "Decide", approval_id="a1", **APPROVE)
                while (await changes(stream)).state != pb.APPROVAL_STATE_APPROVED:
                    pass
        failure = await other.refused(ANN, "Decide", approval_id="a1", deny=pb.DenyDecision())
        assert failure.metadata["decided_by"] == "bob"
        stream.cancel()


async def listening(one: Remote, stream: Any) -> None:
    """Wait until the other replica's LISTEN stands: ask for something new until it is seen there."""
    for number in range(200):
        await one.ask(ANN, f"probe{number}")
        if (await stream.read()).HasField("approval"):
            return
    raise AssertionError("the other replica never heard of a change")


class HttpEndpoint:
    """A webhook receiver on loopback that answers the first calls with `refusals`, then 204."""

    def __init__(self, refusals: list[int]) -> None:
        self.refusals = refusals
        self.got: asyncio.Queue[tuple[bytes, dict[str, str]]] = asyncio.Queue()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = await reader.readexactly(int(headers["content-length"]))
        status = self.refusals.pop(0) if self.refusals else 204
        writer.write(f"HTTP/1.1 {status} Status\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        if status == 204:
            self.got.put_nowait((body, headers))


@asynccontextmanager
async def http_endpoint(refusals: list[int]) -> AsyncIterator[HttpEndpoint]:
    endpoint = HttpEndpoint(refusals)
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    endpoint.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    async with server:
        yield endpoint


async def test_a_webhook_arrives_signed_after_a_failure_and_its_link_decides_once(sqlite_url: str) -> None:
    clock = FakeClock()
    anyone = Principal(tenant="", user="gateway", actor="gateway")
    async with (
        http_endpoint([503, 302]) as endpoint,
        serve_approval(
            sqlite_url,
            clock=clock,
            webhook_urls=(endpoint.url,),
            webhook_secret=Secret(SECRET),
            link_base="https://proctor.acme.example/links/",
        ) as remote,
    ):
        asked = await remote.ask(ANN, arguments_json=b'{"to":"secret"}')
        async with asyncio.timeout(20):
            while endpoint.got.empty():
                clock.advance(1)
                await asyncio.sleep(0.02)
        body, headers = endpoint.got.get_nowait()
        message = json.loads(body)
        assert verify(SECRET, headers["proctor-signature"], body, clock.now())
        assert (message["type"], message["approval"]["id"]) == ("approval.requested", "a1")
        token = message["link"].removeprefix("https://proctor.acme.example/links/")

        shown = await remote.call(anyone, "GetLink", token=token)
        assert shown.approval.state == pb.APPROVAL_STATE_PENDING
        assert shown.decider == "link:127.0.0.1"
        fields = {"token": token, "arguments_digest": asked.arguments_digest, **APPROVE}
        wrong = await remote.refused(anyone, "DecideByLink", **{**fields, "arguments_digest": "0" * 64})
        assert wrong.reason == "DIGEST_MISMATCH"
        forged = await remote.refused(anyone, "DecideByLink", **{**fields, "token": token[:-2] + "AA"})
        assert forged.reason == "LINK_INVALID"
        decided = await remote.call(anyone, "DecideByLink", comment="from the phone", **fields)
        assert (decided.approval.state, decided.approval.decided_by) == (2, "link:127.0.0.1")
        assert (await remote.refused(anyone, "DecideByLink", **fields)).reason == "APPROVAL_DECIDED"
