"""Letting a caller in: authenticated, entitled, within its rate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from services.chassis.errors import PermissionDenied, Unauthenticated
from services.gateway.auth import IDENTITY_HEADER, Caller, credential_of
from services.gateway.dependencies import Parts, PartsDep

# What the routes ask for; `*` is everything. Services ask for more of their own: `runs:all`, `sources:admin`,
# `approvals:read`, `approvals:decide`, `approvals:audit`.
RUNS = "runs"  # start, watch, resume and cancel own runs, answer their approvals, read their artifacts
SOURCES_READ = "sources:read"  # search, read passages, list sources and documents
SOURCES_WRITE = "sources:write"  # create and delete sources and documents
SOURCES_ADMIN = "sources:admin"
APPROVALS_READ, APPROVALS_DECIDE = "approvals:read", "approvals:decide"  # of everybody in the tenant
APPROVALS_AUDIT = "approvals:audit"
AGENTS_WRITE = "agents:write"  # keep agents and prompts of one's own
AGENTS_ADMIN = "agents:admin"  # and see and change everybody's in the tenant
KEYS = "keys"  # make, list and revoke the tenant's keys


def holding(*scopes: str) -> Callable[[Request, PartsDep], Awaitable[Caller]]:
    """Return the dependency that gives a route its caller: known, within its rate, and holding one of `scopes`."""

    async def caller(request: Request, parts: PartsDep) -> Caller:
        admitted = await admit(request, parts, request.state.response_headers)
        require_any(admitted, scopes)
        return admitted

    return caller


async def admit(connection: HTTPConnection, parts: Parts, headers: dict[str, str], credential: str = "") -> Caller:
    """Return the caller, or raise Unauthenticated or RateLimited; leaves in `headers` what the caller is told."""
    address = connection.client.host if connection.client else ""
    parts.limiter.check_failures(address)
    try:
        caller = await parts.authenticator.authenticate(connection, credential)
    except Unauthenticated:
        if credential or credential_of(connection):
            parts.limiter.count_failure(address)
        raise
    headers[IDENTITY_HEADER] = caller.identity
    headers.update(parts.limiter.take(caller.bucket))
    return caller


def require_any(caller: Caller, scopes: tuple[str, ...]) -> None:
    """Raise PermissionDenied unless the caller holds one of the scopes."""
    if not caller.principal.scopes & {"*", *scopes}:
        raise PermissionDenied(
            f"'{caller.principal.user}' lacks the scope '{scopes[0]}'; use a key that has it",
            metadata={"scope": scopes[0]},
        )


asker = holding(RUNS)
Asker = Annotated[Caller, Depends(asker)]
Reader = Annotated[Caller, Depends(holding(SOURCES_READ, SOURCES_WRITE, SOURCES_ADMIN))]
Ingester = Annotated[Caller, Depends(holding(SOURCES_WRITE, SOURCES_ADMIN))]
Decider = Annotated[Caller, Depends(holding(RUNS, APPROVALS_DECIDE, APPROVALS_READ))]
Auditor = Annotated[Caller, Depends(holding(APPROVALS_AUDIT))]
Author = Annotated[Caller, Depends(holding(AGENTS_WRITE, AGENTS_ADMIN))]
KeyKeeper = Annotated[Caller, Depends(holding(KEYS))]
