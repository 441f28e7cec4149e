"""A service for tests of the chassis: approval's contract, with handlers that a test provides."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import grpc

from proctor.approval.v1 import approval_service_pb2 as pb
from proctor.approval.v1 import approval_service_pb2_grpc as stubs
from services.chassis.serve import Service
from services.chassis.streaming import raw_streaming
from tests.support.servers import nothing

NAME = "proctor.approval.v1.ApprovalService"
Unary = Callable[[pb.DecideRequest, Any], Awaitable[pb.DecideResponse]]
Stream = Callable[[pb.WatchApprovalsRequest, Any], AsyncGenerator[Any, None]]


async def decided(request: pb.DecideRequest, context: Any) -> pb.DecideResponse:
    """Answer at once."""
    return pb.DecideResponse(decided_now=True)


async def three(request: pb.WatchApprovalsRequest, context: Any) -> AsyncGenerator[pb.WatchApprovalsResponse, None]:
    """Stream three numbered messages."""
    for number in range(3):
        yield message(number)


def message(number: int) -> pb.WatchApprovalsResponse:
    """Return a numbered message of the stream."""
    return pb.WatchApprovalsResponse(approval=pb.Approval(round=number))


class Servicer(stubs.ApprovalServiceServicer):
    """`Decide` is the unary method, `WatchApprovals` the stream."""

    def __init__(self, unary: Unary, stream: Stream) -> None:
        self._unary = unary
        self._stream = stream

    async def Decide(self, request: pb.DecideRequest, context: Any) -> pb.DecideResponse:
        return await self._unary(request, context)

    async def WatchApprovals(self, request: pb.WatchApprovalsRequest, context: Any) -> AsyncIterator[Any]:
        # A generator that forwards another must close it: nobody else does when a call is cancelled.
        async with aclosing(self._stream(request, context)) as responses:
            async for each in responses:
                yield each


@dataclass
class Hooks:
    """What the server called, in order."""

    called: list[str] = field(default_factory=list)

    def named(self, name: str) -> Callable[[], Awaitable[None]]:
        async def hook() -> None:
            self.called.append(name)

        return hook


def probe(unary: Unary = decided, stream: Stream = three, *, hooks: Hooks | None = None, **changes: Any) -> Service:
    """Return the service; `changes` replace fields of Service."""
    servicer = Servicer(unary, stream)  # type: ignore[abstract]  # the rest stays unimplemented

    def register(server: grpc.aio.Server) -> None:
        raw_streaming(stubs.add_ApprovalServiceServicer_to_server)(servicer, server)

    fields: dict[str, Any] = {
        "name": "probe",
        "register": register,
        "grpc_services": (NAME,),
        "start": hooks.named("start") if hooks else nothing,
        "drain": hooks.named("drain") if hooks else nothing,
        "close": hooks.named("close") if hooks else nothing,
    }
    return Service(**(fields | changes))
