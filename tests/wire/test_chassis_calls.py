"""The interceptors over real sockets: errors, identity, validation, concurrency, raw streams, health, drain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from proctor.approval.v1 import approval_service_pb2 as pb
from proctor.approval.v1 import approval_service_pb2_grpc as stubs
from services.chassis.channel import DEFAULT_TIMEOUT
from services.chassis.errors import Overloaded, RemoteFailure, from_rpc_error
from services.chassis.identity import IdentitySigner, current_principal
from services.chassis.serve import ServerLimits
from tests.support.clock import FakeClock
from tests.support.platform import principal, test_platform
from tests.support.probe import NAME, Hooks, message, probe, three
from tests.support.servers import Served, serve

DECIDE = pb.DecideRequest(approval_id="a1", deny=pb.DenyDecision())
WATCH = pb.WatchApprovalsRequest()


def stub(served: Served) -> stubs.ApprovalServiceAsyncStub:
    return stubs.ApprovalServiceStub(served.channel)


def as_ann(served: Served) -> Any:
    return served.platform.signer.metadata(principal("ann"))


async def failure_of(call: Any) -> RemoteFailure:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    return from_rpc_error(caught.value)


async def test_the_principal_of_the_token_is_the_handlers() -> None:
    async def who(request: pb.DecideRequest, context: Any) -> pb.DecideResponse:
        return pb.DecideResponse(approval=pb.Approval(decided_by=current_principal().user))

    async def who_streaming(request: Any, context: Any) -> AsyncGenerator[pb.WatchApprovalsResponse, None]:
        await asyncio.sleep(0)
        yield pb.WatchApprovalsResponse(approval=pb.Approval(decided_by=current_principal().user))

    async with serve(probe(who, who_streaming)) as served:
        reply = await stub(served).Decide(DECIDE, metadata=as_ann(served))
        streamed = [r async for r in stub(served).WatchApprovals(WATCH, metadata=as_ann(served))]
    assert reply.approval.decided_by == "ann"
    assert [r.approval.decided_by for r in streamed] == ["ann"]


async def test_a_call_without_identity_is_refused() -> None:
    async with serve(probe()) as served:
        unary = await failure_of(stub(served).Decide(DECIDE))
        stream = await failure_of(stub(served).WatchApprovals(WATCH))
    assert unary.code is stream.code is grpc.StatusCode.UNAUTHENTICATED
    assert unary.reason == stream.reason == "UNAUTHENTICATED"


@pytest.mark.parametrize("fault", ["forged", "expired", "garbage"])
async def test_a_bad_token_is_refused(fault: str) -> None:
    clock = FakeClock()
    platform = test_platform(clock=clock)
    async with serve(probe(), platform=platform) as served:
        metadata = {
            "forged": IdentitySigner("another-key-" + "1" * 32, clock).metadata(principal()),
            "expired": as_ann(served),
            "garbage": (("authorization", "Bearer not.a.token"),),
        }[fault]
        clock.advance(3600 if fault == "expired" else 0)
        failure = await failure_of(stub(served).Decide(DECIDE, metadata=metadata))
    assert failure.reason == "UNAUTHENTICATED"


async def test_a_service_error_reaches_the_client_with_reason_and_delay() -> None:
    async def full(request: Any, context: Any) -> pb.DecideResponse:
        raise Overloaded("all 3 slots are busy; try again", metadata={"slots": "3"}, retry_after=2.5)

    async def full_later(request: Any, context: Any) -> AsyncGenerator[Any, None]:
        yield message(0)
        raise Overloaded("all 3 slots are busy; try again", metadata={"slots": "3"}, retry_after=2.5)

    async with serve(probe(full, full_later)) as served:
        unary = await failure_of(stub(served).Decide(DECIDE, metadata=as_ann(served)))
        stream = await failure_of(stub(served).WatchApprovals(WATCH, metadata=as_ann(served)))
    assert unary == stream
    assert (unary.code, unary.reason, unary.retry_after) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", 2.5)
    assert unary.metadata == {"slots": "3"}


async def test_an_unexpected_failure_is_internal_and_keeps_its_details_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(request: Any, context: Any) -> pb.DecideResponse:
        raise KeyError("hunter2")

    async with serve(probe(broken)) as served:
        failure = await failure_of(stub(served).Decide(DECIDE, metadata=as_ann(served)))
    assert (failure.code, failure.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "hunter2" not in failure.message
    assert "hunter2" in caplog.text


async def test_every_violation_of_a_request_is_named() -> None:
    async with serve(probe()) as served:
        bad = pb.DecideRequest(approval_id="", comment="x" * 5000)
        failure = await failure_of(stub(served).Decide(bad, metadata=as_ann(served)))
    assert failure.code is grpc.StatusCode.INVALID_ARGUMENT
    assert {v.field for v in failure.violations} == {"approval_id", "decision", "comment"}


async def test_calls_over_the_cap_are_refused_with_a_time_to_come_back() -> None:
    release, entered = asyncio.Event(), asyncio.Event()

    async def slow(request: Any, context: Any) -> pb.DecideResponse:
        entered.set()
        await release.wait()
        return pb.DecideResponse()

    async with serve(probe(slow), limits=ServerLimits(concurrent_calls=1)) as served:
        first = stub(served).Decide(DECIDE, metadata=as_ann(served))
        waiting = asyncio.ensure_future(first)
        await entered.wait()
        failure = await failure_of(stub(served).Decide(DECIDE, metadata=as_ann(served)))
        streamed = [r async for r in stub(served).WatchApprovals(WATCH, metadata=as_ann(served))]
        release.set()
        await waiting
        await stub(served).Decide(DECIDE, metadata=as_ann(served))
    assert failure.reason == "OVERLOADED"
    assert failure.retry_after is not None
    assert len(streamed) == 3


async def test_a_stream_may_yield_bytes_that_are_encoded_already() -> None:
    async def mixed(request: Any, context: Any) -> AsyncGenerator[Any, None]:
        yield message(1).SerializeToString()
        yield message(2)

    async with serve(probe(stream=mixed)) as served:
        rounds = [r.approval.round async for r in stub(served).WatchApprovals(WATCH, metadata=as_ann(served))]
    assert rounds == [1, 2]


async def test_a_message_over_the_limit_is_refused() -> None:
    async with serve(probe(), limits=ServerLimits(max_message_bytes=1000)) as served:
        big = pb.DecideRequest(approval_id="a", edit=pb.EditDecision(arguments_json=b"x" * 2000))
        failure = await failure_of(stub(served).Decide(big, metadata=as_ann(served)))
    assert failure.code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_health_and_reflection_need_no_identity() -> None:
    async with serve(probe()) as served:
        health = health_pb2_grpc.HealthStub(served.channel)
        status = await health.Check(health_pb2.HealthCheckRequest(service=NAME))
        reflected = reflection_pb2_grpc.ServerReflectionStub(served.channel).ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        names = {s.name async for r in reflected for s in r.list_services_response.service}
    assert status.status == health_pb2.HealthCheckResponse.SERVING
    assert {NAME, "grpc.health.v1.Health"} <= names


async def test_health_follows_what_the_service_says() -> None:
    serving = True
    async with serve(probe(serving=lambda: serving)) as served:
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(health_pb2.HealthCheckRequest(service=NAME))
        seen = [(await watch.read()).status]
        serving = False
        seen.append((await watch.read()).status)
        watch.cancel()
    assert seen == [health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]


async def test_a_service_starts_drains_and_closes_in_that_order() -> None:
    hooks = Hooks()
    async with serve(probe(hooks=hooks)):
        assert hooks.called == ["start"]
    assert hooks.called == ["start", "drain", "close"]


async def test_a_service_that_cannot_start_is_closed_and_its_failure_told() -> None:
    hooks = Hooks()

    async def refuse() -> None:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        async with serve(probe(hooks=hooks, start=refuse)):
            pass
    assert hooks.called == ["close"]


async def test_a_call_in_progress_is_finished_before_the_server_stops() -> None:
    entered = asyncio.Event()

    async def slow(request: Any, context: Any) -> pb.DecideResponse:
        entered.set()
        await asyncio.sleep(0.2)
        return pb.DecideResponse(decided_now=True)

    async with serve(probe(slow), grace=5.0) as served:
        other = served.platform.channel(served.address)
        pending = asyncio.ensure_future(stubs.ApprovalServiceStub(other).Decide(DECIDE, metadata=as_ann(served)))
        await entered.wait()
    assert (await pending).decided_now
    await other.close()


async def test_an_unknown_method_is_unimplemented() -> None:
    async with serve(probe()) as served:
        call: Any = served.channel.unary_unary("/proctor.approval.v1.ApprovalService/Nope")
        failure = await failure_of(call(b"", metadata=as_ann(served)))
    assert failure.code is grpc.StatusCode.UNIMPLEMENTED


async def test_a_method_the_servicer_lacks_is_unimplemented() -> None:
    async with serve(probe(stream=three)) as served:
        call = stub(served).CancelApproval(pb.CancelApprovalRequest(approval_id="a"), metadata=as_ann(served))
        failure = await failure_of(call)
    assert failure.code is grpc.StatusCode.UNIMPLEMENTED


async def test_a_calls_own_metadata_and_timeout_go_along_with_ours() -> None:
    told: list[Any] = []

    async def note(request: Any, context: Any) -> pb.DecideResponse:
        told.append((dict(context.invocation_metadata()), context.time_remaining()))
        return pb.DecideResponse()

    async with serve(probe(note)) as served:
        for metadata in ((*as_ann(served), ("x-own", "1")), grpc.aio.Metadata(*as_ann(served), ("x-own", "1"))):
            await stub(served).Decide(DECIDE, metadata=metadata, timeout=5)
        await stub(served).Decide(DECIDE, metadata=as_ann(served))
    assert [metadata.get("x-own") for metadata, _ in told] == ["1", "1", None]
    assert [remaining < 6 for _, remaining in told] == [True, True, False]
    assert told[2][1] <= DEFAULT_TIMEOUT + 0.5


async def test_a_channel_tells_its_state_and_is_closed_at_the_end_of_its_block() -> None:
    async with serve(probe()) as served:
        async with served.platform.channel(served.address) as channel:
            await channel.channel_ready()
            assert channel.get_state() is grpc.ChannelConnectivity.READY
            call = stubs.ApprovalServiceStub(channel).Decide(DECIDE, metadata=as_ann(served))
            await call
        with pytest.raises(grpc.aio.UsageError):
            await stubs.ApprovalServiceStub(channel).Decide(DECIDE)
