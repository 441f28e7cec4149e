"""The approval service behind a real socket, and calls to it as a principal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import grpc

from proctor.approval.v1 import approval_service_pb2 as pb
from proctor.approval.v1 import approval_service_pb2_grpc as pb_grpc
from services.approval.bootstrap import build
from services.approval.settings import Settings
from services.chassis.clock import Clock
from services.chassis.errors import RemoteFailure, from_rpc_error
from services.chassis.identity import Principal
from services.chassis.platform import Platform
from services.chassis.settings import Secret
from services.chassis.telemetry import Telemetry
from tests.support.approvals import SCHEMA
from tests.support.platform import test_platform
from tests.support.servers import Served, serve


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A served approval service."""

    served: Served
    platform: Platform
    stub: Any = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stub", pb_grpc.ApprovalServiceStub(self.served.channel))

    async def call(self, principal: Principal, method: str, **fields: Any) -> Any:
        """Call `method` with a request of `fields`, in the name of `principal`."""
        request = getattr(pb, f"{method}Request")(**fields)
        return await getattr(self.stub, method)(request, metadata=self.platform.signer.metadata(principal))

    async def refused(self, principal: Principal, method: str, **fields: Any) -> RemoteFailure:
        """Call `method` and return how it failed."""
        try:
            response = await self.call(principal, method, **fields)
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error)
        raise AssertionError(f"{method} was not refused: {response}")

    def watch(self, principal: Principal, **fields: Any) -> Any:
        """Begin to watch."""
        metadata = self.platform.signer.metadata(principal)
        return self.stub.WatchApprovals(pb.WatchApprovalsRequest(**fields), metadata=metadata)

    async def ask(self, principal: Principal, approval_id: str = "a1", **fields: Any) -> pb.Approval:
        """Request a decision about `send_mail`, with `fields` changed."""
        wanted: dict[str, Any] = {
            "kind": pb.APPROVAL_KIND_TOOL,
            "run_id": "run1",
            "round": 1,
            "call_id": f"call-{approval_id}",
            "tool": "send_mail",
            "arguments_json": b'{"to":"x"}',
            "parameters_json": SCHEMA,
            **fields,
        }
        response: pb.RequestApprovalResponse = await self.call(
            principal, "RequestApproval", approval_id=approval_id, **wanted
        )
        return response.approval


async def changes(stream: Any) -> pb.Approval:
    """Return the next record of a watch, passing over keep-alives."""
    while True:
        message = await stream.read()
        if message is grpc.aio.EOF:
            raise AssertionError("the watch ended")
        if message.HasField("approval"):
            approval: pb.Approval = message.approval
            return approval


@asynccontextmanager
async def serve_approval(
    url: str, *, clock: Clock | None = None, telemetry: Telemetry | None = None, **settings: Any
) -> AsyncIterator[Remote]:
    """Serve one replica over the database at `url`."""
    platform = test_platform(clock=clock, telemetry=telemetry)
    quick = {"poll_interval": timedelta(milliseconds=100), "sweep_interval": timedelta(milliseconds=100)}
    service = await build(Settings(database_url=Secret(url), **{**quick, **settings}), platform)
    async with serve(service, platform=platform) as served:
        yield Remote(served=served, platform=platform)
