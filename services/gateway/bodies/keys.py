"""Bodies of the key routes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, Field

from services.gateway.bodies.base import Body
from services.gateway.keys import ApiKey, NewKey

Word = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9:._*-]+$")]


class CreateKey(Body):
    """A new key."""

    name: str = Field(min_length=1, max_length=128)
    user: str | None = Field(
        default=None, min_length=1, max_length=255, description="Whose key it is; else the caller's."
    )
    tenant: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Only for a caller on the gateway's own machine; everyone else makes keys of the own tenant.",
    )
    scopes: list[Word] = Field(default=["runs", "sources:read"], min_length=1, max_length=64)
    groups: list[Word] = Field(default_factory=list, max_length=64)
    agent: str = Field(default="", max_length=128, description="Binds the key to one agent and its sources.")
    lifetime: float | None = Field(default=None, gt=0, le=3.2e8, description="Seconds until it expires; else never.")

    def wanted(self, user: str) -> NewKey:
        """Return what to make; `user` is used when the body names none."""
        return NewKey(
            name=self.name,
            user=self.user or user,
            scopes=frozenset(self.scopes),
            groups=frozenset(self.groups),
            agent=self.agent,
            lifetime=timedelta(seconds=self.lifetime) if self.lifetime is not None else None,
        )


class RotateKey(Body):
    """How long the old key still works."""

    grace: float = Field(default=86_400, ge=0, le=3.2e7, description="Seconds.")


class KeyView(BaseModel):
    """A key as it may be shown."""

    key_id: str
    prefix: str
    name: str
    tenant: str
    user: str
    scopes: list[str]
    groups: list[str]
    agent: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    replaces: str


class IssuedKey(KeyView):
    """A new key with the credential, which is shown this once."""

    key: str


class KeyPage(BaseModel):
    """Keys, newest first."""

    keys: list[KeyView]
    next_page_token: str


def view(key: ApiKey) -> dict[str, Any]:
    """Return the members of a KeyView."""
    return {
        "key_id": key.key_id,
        "prefix": key.prefix,
        "name": key.name,
        "tenant": key.tenant,
        "user": key.user,
        "scopes": sorted(key.scopes),
        "groups": sorted(key.groups),
        "agent": key.agent,
        "created_by": key.created_by,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
        "replaces": key.replaces,
    }
