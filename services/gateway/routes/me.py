"""Who calls, and what a page needs to know to offer what that caller may do."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from services.gateway.access import Asker
from services.gateway.dependencies import PartsDep

router = APIRouter(prefix="/v1/me", tags=["keys"])


class Me(BaseModel):
    """A caller as the gateway knows it."""

    tenant: str
    user: str
    identity: str = Field(description="local-no-key, key or jwt.")
    scopes: list[str] = Field(description="What the caller may do; `*` is everything.")
    agent: str = Field(description="The only agent that the caller's key serves; empty is any.")
    trace_url: str = Field(
        description="Where a trace is looked at, with `{trace_id}` in it; empty when nowhere is set."
    )


@router.get("")
async def who_am_i(parts: PartsDep, caller: Asker) -> Me:
    """Return the caller."""
    return Me(
        tenant=caller.principal.tenant,
        user=caller.principal.user,
        identity=caller.identity,
        scopes=sorted(caller.principal.scopes),
        agent=caller.agent,
        trace_url=parts.settings.trace_url,
    )
