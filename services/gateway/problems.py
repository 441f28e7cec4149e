"""Failures as `application/problem+json` (RFC 9457), from service errors, failed RPCs and HTTP's own."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from services.chassis.errors import FieldViolation, ServiceError, from_rpc_error

log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"

_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
# Reasons whose HTTP status says more than their gRPC code does.
_STATUS_BY_REASON = {"TOO_LARGE": 413, "EVENTS_PRUNED": 410, "OVERLOADED": 503, "IDEMPOTENCY_KEY_REUSED": 422}
_REASON_BY_STATUS = {
    400: "INVALID_REQUEST",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    429: "RATE_LIMITED",
    503: "UNAVAILABLE",
}
_TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    410: "Gone",
    413: "Too large",
    415: "Unsupported media type",
    422: "Unprocessable",
    429: "Too many requests",
    499: "Client closed request",
    500: "Internal error",
    501: "Not implemented",
    503: "Unavailable",
    504: "Timed out",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One failure as HTTP tells it. `reason` is stable; `retry_after` is in seconds."""

    status: int
    reason: str
    detail: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: tuple[FieldViolation, ...] = ()
    retry_after: float | None = None

    def body(self, request_id: str = "") -> dict[str, Any]:
        """Return the members of the problem document."""
        value: dict[str, Any] = {
            "type": f"urn:proctor:problem:{self.reason.lower().replace('_', '-')}",
            "title": _TITLES.get(self.status, "Error"),
            "status": self.status,
            "detail": self.detail,
            "reason": self.reason,
            "metadata": dict(self.metadata),
            "violations": [{"field": v.field, "description": v.description} for v in self.violations],
        }
        if request_id:
            value["request_id"] = request_id
        return value

    def headers(self) -> dict[str, str]:
        """Return the headers that go with it."""
        headers: dict[str, str] = {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after)))
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="proctor"'
        return headers


class BadInput(ServiceError):
    """The HTTP request itself is wrong; the message says how to mend it."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "INVALID_REQUEST"


def problem_of(error: BaseException) -> Problem:
    """Return how HTTP tells `error`; what is not an expected failure is INTERNAL without details."""
    if isinstance(error, ServiceError):
        return Problem(
            status=http_status(error.code, error.reason),
            reason=error.reason,
            detail=error.message,
            metadata=error.metadata,
            violations=error.violations,
            retry_after=error.retry_after,
        )
    if isinstance(error, grpc.RpcError):
        return _problem_of_rpc(error)
    if isinstance(error, RequestValidationError):
        return _problem_of_validation(error)
    if isinstance(error, HTTPException):
        if isinstance(error.__cause__, ServiceError):  # raised while the framework read the body
            return problem_of(error.__cause__)
        reason = _REASON_BY_STATUS.get(error.status_code, "HTTP_ERROR")
        return Problem(status=error.status_code, reason=reason, detail=str(error.detail))
    if isinstance(error, UnicodeEncodeError):
        # JSON may write half of a character, which no text of ours can hold.
        return problem_of(BadInput("the text holds half of a character (a lone surrogate); send whole ones"))
    return Problem(
        status=500, reason="INTERNAL", detail="the gateway failed; its log has the details under the request id"
    )


def http_status(code: grpc.StatusCode, reason: str) -> int:
    """Return the HTTP status of a failure by its gRPC status and reason."""
    return _STATUS_BY_REASON.get(reason) or _STATUS.get(code, 500)


def _problem_of_rpc(error: grpc.RpcError) -> Problem:
    failure = from_rpc_error(error)
    reason, detail, retry_after = failure.reason, failure.message, failure.retry_after
    if not reason:
        # No ErrorInfo: the failure came from the transport, whose text is for the log.
        log.warning("a backend call failed", extra={"event": "rpc.failed", "code": failure.code.name, "text": detail})
        reason = failure.code.name if failure.code in _STATUS else "INTERNAL"
        detail = f"a service behind the gateway did not answer ({failure.code.name})"
        if failure.code is grpc.StatusCode.UNAVAILABLE:
            retry_after = 1.0
    return Problem(
        status=http_status(failure.code, reason),
        reason=reason,
        detail=detail,
        metadata=failure.metadata,
        violations=failure.violations,
        retry_after=retry_after,
    )


def _problem_of_validation(error: RequestValidationError) -> Problem:
    violations = tuple(
        FieldViolation(field=".".join(str(part) for part in item["loc"] if part != "body"), description=item["msg"])
        for item in error.errors()
    )
    first = violations[0] if violations else FieldViolation(field="", description="the body is not valid")
    where = f"'{first.field}': " if first.field else ""
    return Problem(status=400, reason="INVALID_REQUEST", detail=f"{where}{first.description}", violations=violations)


def respond(problem: Problem, request: Request) -> Response:
    """Return the problem as a response."""
    request_id = str(request.scope.get("state", {}).get("request_id", ""))
    return Response(
        orjson.dumps(problem.body(request_id)),
        status_code=problem.status,
        headers=problem.headers(),
        media_type=MEDIA_TYPE,
    )


Handler = Callable[[Request, Exception], Awaitable[Response]]


def install(app: FastAPI, render: Callable[[Problem, Request], Response] = respond) -> Handler:
    """Make every failure of `app` a response of `render`, by default a problem document; return what does it."""

    async def handle(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        if problem.status == 500:
            log.error("request failed", exc_info=error, extra={"event": "http.failed", "path": request.url.path})
        return render(problem, request)

    for kind in (ServiceError, grpc.RpcError, RequestValidationError, HTTPException, UnicodeEncodeError, Exception):
        app.add_exception_handler(kind, handle)
    return handle
