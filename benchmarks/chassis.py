"""What the chassis costs a call: the same servicer bare on grpc.aio and behind our interceptors, in one process.

Prints microseconds of CPU per unary call and per streamed message for both, and their ratio.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from proctor.approval.v1 import approval_service_pb2 as pb
from proctor.approval.v1 import approval_service_pb2_grpc as stubs
from services.chassis.serve import start_server
from services.chassis.telemetry import Telemetry
from tests.support.platform import principal, recorded_telemetry, test_platform
from tests.support.probe import decided, probe

CALLS = 2000
MESSAGES = 20_000
ROUNDS = 5
DECIDE = pb.DecideRequest(approval_id="a1", deny=pb.DenyDecision())
EVENT = pb.WatchApprovalsResponse(approval=pb.Approval(reason="x" * 200)).SerializeToString()


async def many(request: Any, context: Any) -> AsyncGenerator[bytes, None]:
    """Stream what is encoded already, as the orchestrator does."""
    for _ in range(MESSAGES):
        yield EVENT


async def measure(channel: grpc.aio.Channel, metadata: Any) -> tuple[float, float]:
    """Return microseconds of this process's CPU per unary call and per message."""
    stub = stubs.ApprovalServiceStub(channel)
    await stub.Decide(DECIDE, metadata=metadata)
    started = time.process_time()
    for _ in range(CALLS):
        await stub.Decide(DECIDE, metadata=metadata)
    unary = (time.process_time() - started) / CALLS
    started = time.process_time()
    async for _ in stub.WatchApprovals(pb.WatchApprovalsRequest(), metadata=metadata):
        pass
    return unary * 1e6, (time.process_time() - started) / MESSAGES * 1e6


async def bare() -> tuple[float, float]:
    """Measure grpc.aio alone."""
    server = grpc.aio.server()
    service = probe(decided, many)
    service.register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        result = await measure(channel, None)
    await server.stop(None)
    return result


async def ours(telemetry: Telemetry | None) -> tuple[float, float]:
    """Measure the same behind the interceptors, on both sides."""
    platform = test_platform(telemetry=telemetry)
    server = await start_server(probe(decided, many), "127.0.0.1:0", platform)
    channel = platform.channel(server.address)
    result = await measure(channel, platform.signer.metadata(principal()))
    await channel.close()
    await server.stop(0)
    return result


async def main() -> None:
    """Take turns, so that what else the machine does meets all alike, and print the best of each."""
    cases: dict[str, Callable[[], Awaitable[tuple[float, float]]]] = {
        "bare grpc.aio": bare,
        "chassis": lambda: ours(None),
        "chassis, spans and metrics kept": lambda: ours(recorded_telemetry().telemetry),
    }
    best: dict[str, tuple[float, float]] = {}
    for _ in range(ROUNDS):
        for name, case in cases.items():
            unary, message = await case()
            before = best.get(name, (unary, message))
            best[name] = (min(unary, before[0]), min(message, before[1]))
    base = best["bare grpc.aio"]
    for name, (unary, message) in best.items():
        print(
            f"{name:34} {unary:7.0f} µs a call (+{unary - base[0]:.0f}, ×{unary / base[0]:.2f})"
            f"  {message:6.1f} µs a message (×{message / base[1]:.2f})"
        )


if __name__ == "__main__":
    uvloop.run(main())
