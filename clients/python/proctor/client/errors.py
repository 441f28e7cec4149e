"""What can go wrong: a refusal with its stable reason, or a connection that does not come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2

DETAILS_KEY = "grpc-status-details-bin"


class ProctorError(Exception):
    """A refusal. `reason` is a name of `errors.v1.ErrorReason` without its prefix; `violations` are (field, remedy)."""

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        violations: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after
        self.violations = tuple(violations)


class ConnectionLost(ProctorError):
    """The server cannot be reached, or went away in between; the run goes on without its watcher."""


def of_problem(status: int, problem: Mapping[str, object], retry_after: str = "") -> ProctorError:
    """Return the error that a problem document tells."""
    violations = problem.get("violations")
    kind = ConnectionLost if status in {502, 503, 504} else ProctorError
    metadata = problem.get("metadata")
    return kind(
        str(problem.get("detail") or problem.get("title") or f"HTTP {status}"),
        reason=str(problem.get("reason") or ""),
        metadata=metadata if isinstance(metadata, Mapping) else None,
        retry_after=float(retry_after) if retry_after.isdigit() else None,
        violations=[(v["field"], v["description"]) for v in violations] if isinstance(violations, list) else (),
    )


def of_rpc(error: grpc.RpcError) -> ProctorError:
    """Return the error that a failed RPC tells."""
    code: grpc.StatusCode = error.code()
    kind = ConnectionLost if code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED} else ProctorError
    info, retry, bad = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo(), error_details_pb2.BadRequest()
    trailers: Any = error.trailing_metadata() or ()
    for key, value in trailers:
        if key == DETAILS_KEY:
            for detail in status_pb2.Status.FromString(value).details:
                for message in (info, retry, bad):
                    detail.Unpack(message)
    return kind(
        error.details() or code.name,
        reason=info.reason or code.name,
        metadata=json_format.MessageToDict(info).get("metadata", {}),
        retry_after=retry.retry_delay.ToNanoseconds() / 1e9 if retry.HasField("retry_delay") else None,
        violations=[(violation.field, violation.description) for violation in bad.field_violations],
    )
