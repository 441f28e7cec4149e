"""The bridge proves things about async servicers, so it is proved first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from proctor.approval.v1 import approval_service_pb2 as pb
from services.chassis.errors import PermissionDenied
from services.chassis.identity import current_principal
from tests.support.bridge import Bridge
from tests.support.platform import principal

SERVICE = pb.DESCRIPTOR.services_by_name["ApprovalService"]


class Servicer:
    """Answers every method, some badly."""

    async def Decide(self, request: pb.DecideRequest, context: Any) -> pb.DecideResponse:
        return pb.DecideResponse(approval=pb.Approval(decided_by=current_principal().user))

    async def CancelApproval(self, request: pb.CancelApprovalRequest, context: Any) -> pb.CancelApprovalResponse:
        raise PermissionDenied("not yours")

    async def RequestApproval(self, request: pb.RequestApprovalRequest, context: Any) -> pb.RequestApprovalResponse:
        await context.abort(grpc.StatusCode.ALREADY_EXISTS, "there")
        raise AssertionError("abort returned")

    async def WatchApprovals(
        self, request: pb.WatchApprovalsRequest, context: Any
    ) -> AsyncIterator[pb.WatchApprovalsResponse]:
        for number in range(3):
            yield pb.WatchApprovalsResponse(approval=pb.Approval(round=number))
        if request.run_id:
            raise PermissionDenied("another's run")

    def __getattr__(self, name: str) -> Any:
        return None


async def test_the_coroutine_is_driven_as_the_principal() -> None:
    outcome = await Bridge(SERVICE, Servicer(), principal("ann")).call("Decide", pb.DecideRequest())
    assert outcome.code is grpc.StatusCode.OK
    assert outcome.response.approval.decided_by == "ann"


async def test_a_service_error_is_its_status() -> None:
    outcome = await Bridge(SERVICE, Servicer(), principal()).call("CancelApproval", pb.CancelApprovalRequest())
    assert (outcome.code, outcome.details) == (grpc.StatusCode.PERMISSION_DENIED, "not yours")


async def test_an_abort_ends_the_call() -> None:
    outcome = await Bridge(SERVICE, Servicer(), principal()).call("RequestApproval", pb.RequestApprovalRequest())
    assert (outcome.code, outcome.details) == (grpc.StatusCode.ALREADY_EXISTS, "there")


async def test_a_stream_keeps_what_came_before_its_failure() -> None:
    bridge = Bridge(SERVICE, Servicer(), principal())
    whole = await bridge.call("WatchApprovals", pb.WatchApprovalsRequest())
    broken = await bridge.call("WatchApprovals", pb.WatchApprovalsRequest(run_id="r1"))
    assert [response.approval.round for response in whole.responses] == [0, 1, 2]
    assert whole.code is grpc.StatusCode.OK
    assert len(broken.responses) == 3
    assert broken.code is grpc.StatusCode.PERMISSION_DENIED
