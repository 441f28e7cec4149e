"""Expected failures of the sandbox."""

from __future__ import annotations

import grpc

from services.chassis.errors import ServiceError
from services.sandbox.domain import Isolation


class SandboxUnsafe(ServiceError):
    """This machine cannot isolate, so nothing runs."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "SANDBOX_UNSAFE"

    def __init__(self, isolation: Isolation) -> None:
        check = isolation.failure
        name, detail, remedy = (check.name, check.detail, check.remedy) if check else ("unknown", "", "see the log")
        super().__init__(
            f"the sandbox is not safe here, so nothing runs: {name} failed ({detail}); {remedy}",
            metadata={"check": name, "detail": detail[:500], "remedy": remedy},
        )


class SessionNotFound(ServiceError):
    """The session does not exist, has ended or is another's."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "SESSION_NOT_FOUND"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session '{session_id}' does not exist or has ended; create a new one and define its state again",
            metadata={"session_id": session_id},
        )


class ExecutionNotFound(ServiceError):
    """The execution is another's."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "EXECUTION_NOT_FOUND"

    def __init__(self, execution_id: str) -> None:
        super().__init__(
            f"execution '{execution_id}' does not exist for you; choose another id",
            metadata={"execution_id": execution_id},
        )


class ExecutionIdReused(ServiceError):
    """The id came before, with other code or inputs."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "EXECUTION_ID_REUSED"

    def __init__(self, execution_id: str) -> None:
        super().__init__(
            f"execution '{execution_id}' ran other code or inputs; choose another id",
            metadata={"execution_id": execution_id},
        )


class SandboxBusy(ServiceError):
    """Every slot is taken and the queue is full."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "SANDBOX_BUSY"
