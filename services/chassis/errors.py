"""The one kind of expected failure, and how it travels: a status code plus `google.rpc` details."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import grpc
from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2

DOMAIN = "proctor"
DETAILS_KEY = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldViolation:
    """One request field that breaks a rule: its path, and what to do about it."""

    field: str
    description: str


class ServiceError(Exception):
    """An expected failure. Subclasses fix `code` and `reason`; the message names the value and the remedy.

    `reason` is a name of `errors.v1.ErrorReason` without its prefix. `metadata` holds machine-readable facts,
    `retry_after` seconds after which a retry may help, `violations` the fields of a bad request.
    """

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL
    reason: ClassVar[str] = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        violations: Sequence[FieldViolation] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after
        self.violations = tuple(violations)


class InvalidRequest(ServiceError):
    """A request field breaks a rule."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "INVALID_REQUEST"


class Unauthenticated(ServiceError):
    """No or unreadable credentials."""

    code = grpc.StatusCode.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class PermissionDenied(ServiceError):
    """The principal lacks the scope or right."""

    code = grpc.StatusCode.PERMISSION_DENIED
    reason = "PERMISSION_DENIED"


class Unavailable(ServiceError):
    """The service is starting, draining, or something it needs is down."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "UNAVAILABLE"


class Overloaded(ServiceError):
    """Too much at once; `retry_after` says when to come back."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "OVERLOADED"


class TooLarge(ServiceError):
    """Something is larger than its limit."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "TOO_LARGE"


class NotConfigured(ServiceError):
    """The feature needs configuration that is missing; the message names it."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "NOT_CONFIGURED"


class PageTokenInvalid(ServiceError):
    """A page token was not made by this list or is damaged."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "PAGE_TOKEN_INVALID"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFailure:
    """What a failed call told: code, message, and the details it carried (empty reason when there were none)."""

    code: grpc.StatusCode
    message: str
    reason: str
    metadata: Mapping[str, str]
    retry_after: float | None
    violations: tuple[FieldViolation, ...]


def to_status(error: ServiceError) -> status_pb2.Status:
    """Return the `google.rpc.Status` that carries `error` in trailing metadata under DETAILS_KEY."""
    details: list[any_pb2.Any] = []
    info = any_pb2.Any()
    info.Pack(error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata))
    details.append(info)
    if error.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(int(error.retry_after * 1e9))
        retry = any_pb2.Any()
        retry.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        details.append(retry)
    if error.violations:
        bad = any_pb2.Any()
        bad.Pack(
            error_details_pb2.BadRequest(
                field_violations=[
                    error_details_pb2.BadRequest.FieldViolation(field=v.field, description=v.description)
                    for v in error.violations
                ]
            )
        )
        details.append(bad)
    number: int = error.code.value[0]
    return status_pb2.Status(code=code_pb2.Code.ValueType(number), message=error.message, details=details)


def from_rpc_error(error: grpc.RpcError) -> RemoteFailure:
    """Read code, message and details of a failed call; works for `grpc.aio.AioRpcError` and sync errors."""
    code = error.code()
    message = error.details() or code.name
    # The stubs name a metadatum by a class that cannot be taken apart; it is a pair of key and value.
    trailing = cast("Iterable[tuple[str, bytes]]", error.trailing_metadata() or ())
    reason, metadata, retry_after = "", {}, None
    violations: tuple[FieldViolation, ...] = ()
    for key, value in trailing:
        if key != DETAILS_KEY:
            continue
        status = status_pb2.Status.FromString(value)
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            retry = error_details_pb2.RetryInfo()
            bad = error_details_pb2.BadRequest()
            if detail.Unpack(info):
                reason, metadata = info.reason, dict(info.metadata)
            elif detail.Unpack(retry):
                retry_after = retry.retry_delay.ToNanoseconds() / 1e9
            elif detail.Unpack(bad):
                violations = tuple(
                    FieldViolation(field=v.field, description=v.description) for v in bad.field_violations
                )
    return RemoteFailure(
        code=code,
        message=message,
        reason=reason,
        metadata=metadata,
        retry_after=retry_after,
        violations=violations,
    )
