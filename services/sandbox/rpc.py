"""The servicer: parse, call one use case, render."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from proctor.sandbox.v1 import sandbox_service_pb2 as pb
from proctor.sandbox.v1 import sandbox_service_pb2_grpc as pb_grpc
from services.chassis.identity import current_principal
from services.sandbox import codec
from services.sandbox.artifacts import checked_inputs
from services.sandbox.domain import Job
from services.sandbox.executions import Executions
from services.sandbox.limits import resolve
from services.sandbox.ports import Jail
from services.sandbox.sessions import Sessions

Context = grpc.aio.ServicerContext[Any, Any]


class SandboxServicer(pb_grpc.SandboxServiceServicer):
    """Serves `proctor.sandbox.v1.SandboxService`."""

    def __init__(self, executions: Executions, sessions: Sessions, jail: Jail) -> None:
        self._executions = executions
        self._sessions = sessions
        self._jail = jail

    async def Execute(self, request: pb.ExecuteRequest, context: Context) -> AsyncIterator[pb.ExecuteResponse]:
        job = Job(
            execution_id=request.execution_id,
            owner=codec.owner(current_principal()),
            code=request.code,
            files=checked_inputs(codec.input_files(request)),
            limits=resolve(codec.requested_limits(request.limits)),
            session_id=request.session_id,
        )
        async with aclosing(self._executions.execute(job)) as events:
            async for event in events:
                yield codec.event(event, job.limits)

    async def CreateSession(self, request: pb.CreateSessionRequest, context: Context) -> pb.CreateSessionResponse:
        limits = resolve(codec.requested_limits(request.limits))
        session = await self._sessions.create(codec.owner(current_principal()), limits)
        return pb.CreateSessionResponse(session_id=session.session_id)

    async def CloseSession(self, request: pb.CloseSessionRequest, context: Context) -> pb.CloseSessionResponse:
        await self._sessions.close(request.session_id, codec.owner(current_principal()))
        return pb.CloseSessionResponse()

    async def GetIsolation(self, request: pb.GetIsolationRequest, context: Context) -> pb.GetIsolationResponse:
        return codec.isolation(await self._jail.isolation())
