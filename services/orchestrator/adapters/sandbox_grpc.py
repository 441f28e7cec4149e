"""The sandbox service over gRPC. Files stream into the blob store as they come."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator

import grpc

from proctor.sandbox.v1 import sandbox_service_pb2 as pb
from proctor.sandbox.v1.sandbox_service_pb2_grpc import SandboxServiceStub
from services.chassis.clock import Clock
from services.chassis.errors import from_rpc_error
from services.chassis.identity import IdentitySigner, Principal
from services.orchestrator.artifacts import Artifacts
from services.orchestrator.ports import Isolation, SandboxEnd, SandboxEvent, SandboxFile, SandboxOutput

ISOLATION_FRESH = 30.0
# Runs begin with this answer: while the sandbox is away they must not all wait for its silence.
SILENCE_FRESH = 5.0


class GrpcSandbox:
    """Implements the Sandbox port."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        signer: IdentitySigner,
        artifacts: Artifacts,
        clock: Clock,
        service_principal: Principal,
    ) -> None:
        self._stub = SandboxServiceStub(channel)
        self._signer = signer
        self._artifacts = artifacts
        self._clock = clock
        self._service = service_principal
        self._isolation = Isolation(safe=False)
        self._fresh_until = 0.0

    async def execute(
        self, principal: Principal, *, execution_id: str, code: str, run_id: str, session_id: str = ""
    ) -> AsyncIterator[SandboxEvent]:
        """Yield output as it comes, files once they are stored, and one end. Closing it kills the code."""
        request = pb.ExecuteRequest(execution_id=execution_id, code=code, session_id=session_id)
        call = self._stub.Execute(request, metadata=self._signer.metadata(principal))
        decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}
        try:
            async with self._artifacts.upload(principal, run_id) as upload:
                async for response in call:
                    match response.WhichOneof("event"):
                        case "stdout" | "stderr" as name:
                            text = decoders[name].decode(getattr(response, name).data)
                            if text:
                                yield SandboxOutput(text=text, is_error=name == "stderr")
                        case "artifact":
                            piece = response.artifact
                            stored = await upload.write(piece.name, piece.data, last=piece.last)
                            if stored is not None:
                                yield SandboxFile(artifact=stored)
                        case "finished":
                            yield _end(response.finished)
        except grpc.aio.AioRpcError as error:
            failure = from_rpc_error(error)
            yield SandboxEnd(status="sandbox_error", exit_code=-1, message=failure.message)
        finally:
            call.cancel()

    async def isolation(self) -> Isolation:
        """Say whether code may run there, from an answer at most ISOLATION_FRESH seconds old."""
        if self._clock.monotonic() < self._fresh_until:
            return self._isolation
        self._isolation, fresh = await self._ask()
        self._fresh_until = self._clock.monotonic() + fresh
        return self._isolation

    async def _ask(self) -> tuple[Isolation, float]:
        """Return the sandbox's word, or that it gives none, and for how many seconds that holds."""
        try:
            response = await self._stub.GetIsolation(
                pb.GetIsolationRequest(), metadata=self._signer.metadata(self._service), timeout=2.0
            )
        except grpc.aio.AioRpcError as error:
            silent = f"the sandbox service does not answer: {error.details()}"
            return Isolation(safe=False, explanation=silent), SILENCE_FRESH
        failed = [f"{check.name}: {check.remedy or check.detail}" for check in response.checks if not check.passed]
        answer = Isolation(
            safe=response.safe,
            explanation="" if response.safe else "; ".join(failed),
            packages=tuple(response.packages),
        )
        return answer, ISOLATION_FRESH


def _end(finished: pb.Finished) -> SandboxEnd:
    return SandboxEnd(
        status=pb.ExecutionStatus.Name(finished.status).removeprefix("EXECUTION_STATUS_").lower(),
        exit_code=finished.exit_code,
        message=finished.message,
        dropped=tuple(f"{file.name} ({file.reason})" for file in finished.dropped),
        cpu=finished.cpu.ToTimedelta(),
        wall=finished.wall.ToTimedelta(),
        truncated=finished.stdout_truncated or finished.stderr_truncated,
    )
