"""How calls end over real sockets: cancelled, late, abandoned; what handlers see, what spans say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind

from proctor.approval.v1 import approval_service_pb2 as pb
from proctor.approval.v1 import approval_service_pb2_grpc as stubs
from services.chassis import names
from services.chassis.errors import from_rpc_error
from services.chassis.serve import ServerLimits
from tests.support.platform import Recorded, principal, recorded_telemetry, test_platform
from tests.support.probe import message, probe
from tests.support.servers import Served, serve

DECIDE = pb.DecideRequest(approval_id="a1", deny=pb.DenyDecision())
WATCH = pb.WatchApprovalsRequest()


class Witness:
    """A handler that waits for ever, and tells how it ended."""

    def __init__(self, *, waits_in: str) -> None:
        self.waits_in = waits_in
        self.entered = asyncio.Event()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[Any] | None = None

    async def unary(self, request: Any, context: Any) -> pb.DecideResponse:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended.set_result("CancelledError")
            raise
        raise AssertionError

    async def stream(self, request: Any, context: Any) -> AsyncGenerator[pb.WatchApprovalsResponse, None]:
        self.task = asyncio.current_task()
        try:
            yield message(0)
            self.entered.set()
            if self.waits_in == "await":
                await asyncio.Event().wait()
            while True:
                yield message(1)
        except (asyncio.CancelledError, GeneratorExit) as end:
            same = asyncio.current_task() is self.task
            self.ended.set_result(f"{type(end).__name__}{'' if same else ' elsewhere'}")
            raise


def stub(served: Served) -> Any:
    return stubs.ApprovalServiceStub(served.channel)


def ann(served: Served) -> Any:
    return served.platform.signer.metadata(principal("ann"))


async def server_status(recorded: Recorded, method: str) -> tuple[str, bool]:
    """Return the RPC status and whether the span counts as an error, once the server's span has ended."""
    async with asyncio.timeout(5):
        while not (spans := [s for s in recorded.spans(f"{SERVICE}/{method}") if s.kind is SpanKind.SERVER]):
            await asyncio.sleep(0.005)
    span = spans[-1]
    return str((span.attributes or {})[names.RPC_RESPONSE_STATUS_CODE]), not span.status.is_unset


SERVICE = "proctor.approval.v1.ApprovalService"


@pytest.mark.parametrize(("waits_in", "expected"), [("await", "CancelledError"), ("yield", "GeneratorExit")])
async def test_a_cancelled_stream_tells_its_handler_in_its_own_task(waits_in: str, expected: str) -> None:
    recorded = recorded_telemetry()
    witness = Witness(waits_in=waits_in)
    platform = test_platform(telemetry=recorded.telemetry)
    async with serve(probe(stream=witness.stream), platform=platform) as served:
        call = stub(served).WatchApprovals(WATCH, metadata=ann(served))
        await call.read()
        await witness.entered.wait()
        if waits_in == "yield":
            # Nobody reads: the handler ends up suspended in `yield`, the writer waiting for the window.
            await asyncio.sleep(0.2)
        call.cancel()
        ended = await asyncio.wait_for(witness.ended, 5)
        status = await server_status(recorded, "WatchApprovals")
    assert ended == expected
    assert status == ("CANCELLED", False)


async def test_a_cancelled_unary_call_tells_its_handler() -> None:
    recorded = recorded_telemetry()
    witness = Witness(waits_in="await")
    async with serve(probe(witness.unary), platform=test_platform(telemetry=recorded.telemetry)) as served:
        call = stub(served).Decide(DECIDE, metadata=ann(served))
        waiting = asyncio.ensure_future(_swallow(call))
        await witness.entered.wait()
        call.cancel()
        assert await asyncio.wait_for(witness.ended, 5) == "CancelledError"
        assert await server_status(recorded, "Decide") == ("CANCELLED", False)
        await waiting


async def _swallow(call: Any) -> None:
    try:
        await call
    except (grpc.aio.AioRpcError, asyncio.CancelledError):
        return


@pytest.mark.parametrize("waits_in", ["await", "yield"])
async def test_a_stream_past_the_clients_deadline_is_deadline_exceeded_on_both_sides(waits_in: str) -> None:
    recorded = recorded_telemetry()
    witness = Witness(waits_in=waits_in)
    async with serve(probe(stream=witness.stream), platform=test_platform(telemetry=recorded.telemetry)) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            call = stub(served).WatchApprovals(WATCH, metadata=ann(served), timeout=0.3)
            await call.read()
            await asyncio.sleep(0.5)
            while await call.read() is not grpc.aio.EOF:
                pass
        await asyncio.wait_for(witness.ended, 5)
        status = await server_status(recorded, "WatchApprovals")
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert status == ("DEADLINE_EXCEEDED", True)


@pytest.mark.parametrize("waits_in", ["await", "yield"])
async def test_a_stream_past_the_servers_limit_is_ended_with_a_reason(waits_in: str) -> None:
    recorded = recorded_telemetry()
    witness = Witness(waits_in=waits_in)
    limits = ServerLimits(stream_deadline=0.3)
    platform = test_platform(telemetry=recorded.telemetry)
    async with serve(probe(stream=witness.stream), platform=platform, limits=limits) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            call = stub(served).WatchApprovals(WATCH, metadata=ann(served))
            await call.read()
            await asyncio.wait_for(witness.ended, 5)
            while await call.read() is not grpc.aio.EOF:
                pass
        status = await server_status(recorded, "WatchApprovals")
    failure = from_rpc_error(caught.value)
    assert (failure.code, failure.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
    assert status == ("DEADLINE_EXCEEDED", True)


async def test_a_unary_call_past_the_servers_limit_is_ended_with_a_reason() -> None:
    witness = Witness(waits_in="await")
    async with serve(probe(witness.unary), limits=ServerLimits(unary_deadline=0.1)) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(served).Decide(DECIDE, metadata=ann(served))
    assert from_rpc_error(caught.value).reason == "DEADLINE_EXCEEDED"
    assert witness.ended.result() == "CancelledError"


async def test_client_and_server_spans_are_one_trace() -> None:
    recorded = recorded_telemetry()
    inside: list[int] = []

    async def note(request: Any, context: Any) -> pb.DecideResponse:
        inside.append(trace.get_current_span().get_span_context().span_id)
        return pb.DecideResponse()

    async def note_streaming(request: Any, context: Any) -> AsyncGenerator[pb.WatchApprovalsResponse, None]:
        yield message(0)
        inside.append(trace.get_current_span().get_span_context().span_id)
        yield message(1)

    async with serve(probe(note, note_streaming), platform=test_platform(telemetry=recorded.telemetry)) as served:
        with recorded.telemetry.tracer("test").start_as_current_span("caller") as caller:
            await stub(served).Decide(DECIDE, metadata=ann(served))
            assert [r async for r in stub(served).WatchApprovals(WATCH, metadata=ann(served))]
        await server_status(recorded, "WatchApprovals")
    for method, own in zip(("Decide", "WatchApprovals"), inside, strict=True):
        client, server = sorted(recorded.spans(f"{SERVICE}/{method}"), key=lambda span: -span.kind.value)
        assert (client.kind, server.kind) == (SpanKind.CLIENT, SpanKind.SERVER)
        assert client.parent is not None
        assert server.parent is not None
        assert client.parent.span_id == caller.get_span_context().span_id
        assert server.parent.span_id == client.context.span_id
        assert server.context.span_id == own
        assert client.attributes is not None
        assert client.attributes[names.RPC_RESPONSE_STATUS_CODE] == "OK"
    stream = next(s for s in recorded.spans(f"{SERVICE}/WatchApprovals") if s.kind is SpanKind.SERVER)
    assert stream.attributes is not None
    assert stream.attributes[names.STREAM_MESSAGES] == 2
    assert stream.attributes[names.STREAM_TIME_TO_FIRST_MESSAGE] > 0  # type: ignore[operator]


async def test_durations_are_measured_with_their_status() -> None:
    recorded = recorded_telemetry()
    async with serve(probe(), platform=test_platform(telemetry=recorded.telemetry)) as served:
        await stub(served).Decide(DECIDE, metadata=ann(served))
        await _swallow(stub(served).Decide(pb.DecideRequest(), metadata=ann(served)))
    for instrument in (names.RPC_SERVER_DURATION.name, names.RPC_CLIENT_DURATION.name):
        points: list[Any] = recorded.points(instrument)
        assert {point.attributes[names.RPC_RESPONSE_STATUS_CODE] for point in points} == {"OK", "INVALID_ARGUMENT"}
        assert points[0].explicit_bounds == names.RPC_BUCKETS


async def test_a_failing_client_call_ends_its_span_with_the_servers_status() -> None:
    recorded = recorded_telemetry()
    async with serve(probe(), platform=test_platform(telemetry=recorded.telemetry)) as served:
        await _swallow(stub(served).Decide(DECIDE))
    span = next(s for s in recorded.spans(f"{SERVICE}/Decide") if s.kind is SpanKind.CLIENT)
    assert span.attributes is not None
    assert span.attributes[names.ERROR_TYPE] == "UNAUTHENTICATED"


async def test_an_unreachable_server_is_unavailable_within_the_deadline() -> None:
    platform = test_platform()
    channel = platform.channel("unix:/tmp/proctor-nobody-listens.sock")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stubs.ApprovalServiceStub(channel).Decide(DECIDE, metadata=platform.signer.metadata(principal()))
    await channel.close()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
