"""Letting a caller in: authenticated, entitled, within its rate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request

from services.chassis.errors import Unauthenticated
from services.gateway.auth import IDENTITY_HEADER, Caller
from services.gateway.dependencies import PartsDep

# What a key may be allowed to do. `*` is everything.
ASK = "ask"  # start, watch, resume and cancel own runs; read their artifacts; list agents and models
READ = "read"  # search sources and read passages
INGEST = "ingest"  # create and delete sources and documents
DECIDE = "decide"  # see and decide approvals
KEYS = "keys"  # make, list and revoke the tenant's keys
SCOPES = (ASK, READ, INGEST, DECIDE, KEYS)


def holding(scope: str) -> Callable[[Request, PartsDep], Awaitable[Caller]]:
    """Return the dependency that gives a route its caller, once that is known, holds `scope` and is within its rate."""

    async def caller(request: Request, parts: PartsDep) -> Caller:
        headers = request.state.response_headers
        admitted = await admit(request, parts, headers)
        admitted.principal.require(scope)
        return admitted

    return caller


async def admit(request: Request, parts: PartsDep, headers: dict[str, str]) -> Caller:
    """Return the caller of `request`, or raise Unauthenticated or RateLimited; leaves the headers that tell."""
    address = request.client.host if request.client else ""
    parts.limiter.check_failures(address)
    try:
        caller = await parts.authenticator.authenticate(request)
    except Unauthenticated:
        parts.limiter.count_failure(address)
        raise
    headers[IDENTITY_HEADER] = caller.identity
    headers.update(parts.limiter.take(caller.bucket))
    return caller


Asker = Annotated[Caller, Depends(holding(ASK))]
Reader = Annotated[Caller, Depends(holding(READ))]
Ingester = Annotated[Caller, Depends(holding(INGEST))]
Decider = Annotated[Caller, Depends(holding(DECIDE))]
KeyKeeper = Annotated[Caller, Depends(holding(KEYS))]
