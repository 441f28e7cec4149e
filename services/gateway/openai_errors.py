"""Failures in the form OpenAI's wires use."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Response

from services.gateway.problems import Problem

# Paths whose clients expect this form.
_PATHS = ("/v1/chat/", "/v1/responses", "/v1/models")
# Ours, though it lies below one of theirs.
_OURS = "/v1/models/own"
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
# RunFailed reasons whose HTTP status is not 502, "a model behind us failed".
_FAILURES = {
    "CONTEXT_OVERFLOW": 400,
    "OUTPUT_INVALID": 422,
    "QUOTA_EXCEEDED": 429,
    "MODEL_RATE_LIMITED": 429,
    "OVERLOADED": 503,
    "UNAVAILABLE": 503,
    "MODEL_STALLED": 504,
    "MODEL_TIMEOUT": 504,
    "DEADLINE_EXCEEDED": 504,
    "INTERNAL": 500,
    "CANCELLED": 499,
    "NOT_CONFIGURED": 409,
}


def speaks_openai(path: str) -> bool:
    """Whether the clients of `path` expect OpenAI's form."""
    return path.startswith(_PATHS) and not path.startswith(_OURS)


def error_object(problem: Problem, **extension: Any) -> dict[str, Any]:
    """Return the `error` member."""
    value: dict[str, Any] = {
        "message": problem.detail,
        "type": _TYPES.get(problem.status, "server_error" if problem.status >= 500 else "invalid_request_error"),
        "param": problem.violations[0].field if problem.violations else problem.metadata.get("param"),
        "code": "insufficient_quota" if problem.reason == "QUOTA_EXCEEDED" else problem.reason.lower(),
    }
    if extension:
        value["proctor"] = extension
    return value


def respond(problem: Problem, **extension: Any) -> Response:
    """Return the failure as a response."""
    body = {"error": error_object(problem, **extension)}
    return Response(
        orjson.dumps(body), status_code=problem.status, headers=problem.headers(), media_type="application/json"
    )


def failed_run(reason: str, message: str) -> Problem:
    """Return the problem that a run's failure is for a caller who waits for its answer."""
    return Problem(status=_FAILURES.get(reason, 502), reason=reason, detail=message)
