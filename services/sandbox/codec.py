"""Protobuf messages ⇄ domain."""

from __future__ import annotations

from typing import assert_never

from google.protobuf.duration_pb2 import Duration

from proctor.sandbox.v1 import sandbox_service_pb2 as pb
from services.chassis.identity import Principal
from services.sandbox.domain import (
    ArtifactChunk,
    Event,
    Finished,
    InputFile,
    Isolation,
    Limits,
    Output,
    Owner,
    Started,
    Status,
    Stream,
    describe,
)
from services.sandbox.limits import Requested

_STATUSES = {
    Status.OK: pb.EXECUTION_STATUS_OK,
    Status.ERROR: pb.EXECUTION_STATUS_ERROR,
    Status.TIMEOUT: pb.EXECUTION_STATUS_TIMEOUT,
    Status.CPU: pb.EXECUTION_STATUS_CPU,
    Status.OOM: pb.EXECUTION_STATUS_OOM,
    Status.OUTPUT_LIMIT: pb.EXECUTION_STATUS_OUTPUT_LIMIT,
    Status.CANCELLED: pb.EXECUTION_STATUS_CANCELLED,
    Status.SANDBOX_ERROR: pb.EXECUTION_STATUS_SANDBOX_ERROR,
}


def owner(principal: Principal) -> Owner:
    """Return whose things the caller may touch."""
    return Owner(tenant=principal.tenant, user=principal.user)


def requested_limits(message: pb.Limits) -> Requested:
    """Read what the caller asks for; what is unset is 0."""
    return Requested(
        wall=message.wall.ToNanoseconds() / 1e9,
        cpu=message.cpu.ToNanoseconds() / 1e9,
        memory_bytes=message.memory_bytes,
        pids=message.pids,
    )


def input_files(request: pb.ExecuteRequest) -> list[InputFile]:
    """Read the files of a request, unchecked."""
    return [InputFile(name=file.name, content=file.content) for file in request.files]


def event(value: Event, limits: Limits) -> pb.ExecuteResponse:
    """Write an event; `limits` are for the sentence of the last one."""
    match value:
        case Started():
            return pb.ExecuteResponse(started=pb.Started(warm=value.warm, queued=_duration(value.queued)))
        case Output():
            output = pb.Output(sequence=value.sequence, data=value.data)
            if value.stream is Stream.STDOUT:
                return pb.ExecuteResponse(stdout=output)
            return pb.ExecuteResponse(stderr=output)
        case ArtifactChunk():
            return pb.ExecuteResponse(artifact=pb.ArtifactChunk(name=value.name, data=value.data, last=value.last))
        case Finished():
            return pb.ExecuteResponse(finished=_finished(value, limits))
        case _:
            assert_never(value)


def isolation(value: Isolation) -> pb.GetIsolationResponse:
    """Write the proof of isolation."""
    return pb.GetIsolationResponse(
        safe=value.safe,
        backend=value.backend,
        checks=[
            pb.IsolationCheck(name=c.name, passed=c.passed, detail=c.detail, remedy=c.remedy) for c in value.checks
        ],
        cgroup=value.cgroup,
        python_version=value.python_version,
        packages=value.packages,
    )


def _finished(value: Finished, limits: Limits) -> pb.Finished:
    return pb.Finished(
        status=_STATUSES[value.status],
        exit_code=value.exit_code,
        cpu=_duration(value.cpu),
        wall=_duration(value.wall),
        peak_memory_bytes=value.peak_memory_bytes,
        stdout_truncated=value.stdout_truncated,
        stderr_truncated=value.stderr_truncated,
        dropped=[pb.DroppedFile(name=file.name, reason=file.reason) for file in value.dropped],
        state_lost=value.state_lost,
        message=describe(value, limits),
    )


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return duration
