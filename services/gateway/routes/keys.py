"""Keys of a tenant, for holders of the scope `keys`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response

from proctor.orchestrator.v1 import run_service_pb2
from services.chassis.errors import PermissionDenied
from services.gateway.access import KeyKeeper
from services.gateway.auth import LOCAL, Caller
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.bodies.keys import CreateKey, IssuedKey, KeyPage, KeyView, RotateKey, view
from services.gateway.dependencies import PartsDep
from services.gateway.keys import Issued

router = APIRouter(prefix="/v1/keys", tags=["keys"])

TenantQuery = Annotated[str, Query(max_length=128, description="Only for a caller on the gateway's own machine.")]


@router.post("", status_code=201)
async def create_key(body: CreateKey, parts: PartsDep, caller: KeyKeeper) -> IssuedKey:
    """Make a key. The answer holds it, this once."""
    issued = await parts.keys.create(
        caller.principal, _tenant(caller, body.tenant or ""), body.wanted(caller.principal.user)
    )
    return _issued(issued)


@router.get("")
async def list_keys(
    parts: PartsDep,
    caller: KeyKeeper,
    page_size: Annotated[int, Query(ge=0, le=500)] = 0,
    page_token: Annotated[str, Query(max_length=512)] = "",
    tenant: TenantQuery = "",
) -> KeyPage:
    """List keys, newest first, without their secrets."""
    keys, next_token = await parts.keys.page(_tenant(caller, tenant), page_token, page_size or 100)
    return KeyPage(keys=[KeyView(**view(key)) for key in keys], next_page_token=next_token)


@router.delete("/{key_id}", status_code=204)
async def revoke_key(key_id: str, parts: PartsDep, caller: KeyKeeper, tenant: TenantQuery = "") -> Response:
    """Revoke a key. It stops working within seconds, open streams too; runs of it that wait do not go on any more."""
    whose = _tenant(caller, tenant)
    await parts.keys.revoke(whose, key_id)
    acting = replace(caller.principal, tenant=whose)
    # Repeated by whoever is told that it failed: the key itself is revoked by then, and doing so twice is once.
    await parts.backends.runs.EndKey(
        run_service_pb2.EndKeyRequest(key_id=key_id), metadata=parts.signer.metadata(acting), timeout=UNARY_TIMEOUT
    )
    return Response(status_code=204)


@router.post("/{key_id}/rotate", status_code=201)
async def rotate_key(
    key_id: str, body: RotateKey, parts: PartsDep, caller: KeyKeeper, tenant: TenantQuery = ""
) -> IssuedKey:
    """Make a key like this one; the old one works for the grace given."""
    grace = timedelta(seconds=body.grace)
    return _issued(await parts.keys.rotate(caller.principal, _tenant(caller, tenant), key_id, grace))


def _tenant(caller: Caller, asked: str) -> str:
    own = caller.principal.tenant
    if asked in {"", own} or caller.identity == LOCAL:
        return asked or own
    raise PermissionDenied(f"'{caller.principal.user}' keeps the keys of '{own}' only", metadata={"tenant": asked})


def _issued(issued: Issued) -> IssuedKey:
    return IssuedKey(**view(issued.key), key=issued.credential)
