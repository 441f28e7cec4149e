"""API keys: made once and shown once, kept as an Argon2 hash, revoked or replaced, and looked up on every request."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import grpc

from services.chassis.clock import Clock
from services.chassis.errors import InvalidRequest, PageTokenInvalid, PermissionDenied, ServiceError
from services.chassis.identity import Principal
from services.chassis.paging import decode_token, encode_token

PREFIX = "pk"
PAGE = "keys"
ID_BYTES, SECRET_BYTES = 8, 32
# How long a replaced key still works, so that its users can change over.
ROTATION_GRACE = timedelta(hours=24)


class KeyNotFound(ServiceError):
    """The key does not exist in this tenant."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "KEY_NOT_FOUND"


class KeyRevoked(ServiceError):
    """The key was revoked or has expired."""

    code = grpc.StatusCode.UNAUTHENTICATED
    reason = "KEY_REVOKED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One key without its secret. `agent` binds it to a published agent, empty is any; `replaces` is a rotated key."""

    key_id: str
    tenant: str
    user: str
    name: str
    secret_hash: str
    scopes: frozenset[str]
    groups: frozenset[str] = frozenset()
    agent: str = ""
    created_by: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    replaces: str = ""

    @property
    def prefix(self) -> str:
        """The part of the key that may be shown."""
        return f"{PREFIX}-{self.key_id}"

    @property
    def principal(self) -> Principal:
        """On whose behalf the key acts."""
        return Principal(tenant=self.tenant, user=self.user, scopes=self.scopes, groups=self.groups, key_id=self.key_id)

    def valid_at(self, now: datetime) -> bool:
        """Whether the key may be used."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """What a key is made from."""

    name: str
    user: str
    scopes: frozenset[str]
    groups: frozenset[str] = frozenset()
    agent: str = ""
    lifetime: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A new key and, this once, the credential itself."""

    key: ApiKey
    credential: str


class KeyStore(Protocol):
    """Keeps keys."""

    async def add(self, key: ApiKey) -> None: ...

    async def find(self, key_ids: Sequence[str]) -> list[ApiKey]:
        """Return the keys with these ids, whatever their tenant."""
        ...

    async def page(self, tenant: str, before: tuple[datetime, str] | None, limit: int) -> list[ApiKey]:
        """Return a tenant's keys, newest first, older than a position (when made, key id)."""
        ...

    async def end(self, tenant: str, key_id: str, *, revoked_at: datetime | None, expires_at: datetime | None) -> bool:
        """Set when a tenant's key ends, never later than it already does; return whether the key exists."""
        ...

    async def used(self, key_id: str, at: datetime) -> None:
        """Note when a key was last used."""
        ...


class SecretHasher(Protocol):
    """Hashes secrets so that the store's reader cannot use them."""

    async def hash(self, secret: str) -> str: ...

    async def matches(self, secret: str, hashed: str) -> bool: ...


class Keys:
    """Makes, lists, revokes and rotates the keys of a tenant. The caller's scope `keys` is checked by the routes."""

    def __init__(self, store: KeyStore, hasher: SecretHasher, clock: Clock) -> None:
        self._store = store
        self._hasher = hasher
        self._clock = clock

    async def create(self, issuer: Principal, tenant: str, wanted: NewKey, *, replaces: str = "") -> Issued:
        """Issue a key. Nobody grants scopes they lack."""
        beyond = wanted.scopes - issuer.scopes
        if beyond and "*" not in issuer.scopes:
            raise PermissionDenied(
                f"'{issuer.user}' cannot grant {', '.join(sorted(beyond))}",
                metadata={"scopes": " ".join(sorted(beyond))},
            )
        if not wanted.scopes:
            raise InvalidRequest("a key needs at least one scope")
        now = self._clock.now()
        secret = secrets.token_urlsafe(SECRET_BYTES)
        key = ApiKey(
            key_id=secrets.token_hex(ID_BYTES),
            tenant=tenant,
            user=wanted.user,
            name=wanted.name,
            secret_hash=await self._hasher.hash(secret),
            scopes=wanted.scopes,
            groups=wanted.groups,
            agent=wanted.agent,
            created_by=issuer.user,
            created_at=now,
            expires_at=now + wanted.lifetime if wanted.lifetime is not None else None,
            replaces=replaces,
        )
        await self._store.add(key)
        return Issued(key=key, credential=f"{key.prefix}-{secret}")

    async def page(self, tenant: str, token: str, size: int) -> tuple[list[ApiKey], str]:
        """Return keys of the tenant, newest first, and the token of the next page, empty on the last."""
        keys = await self._store.page(tenant, _position(token) if token else None, size + 1)
        if len(keys) <= size:
            return keys, ""
        last = keys[size - 1]
        return keys[:size], encode_token(PAGE, last.created_at.isoformat(), last.key_id)

    async def revoke(self, tenant: str, key_id: str) -> None:
        """End a key now; doing so twice is doing so once."""
        if not await self._store.end(tenant, key_id, revoked_at=self._clock.now(), expires_at=None):
            raise KeyNotFound(f"there is no key '{key_id}'", metadata={"key_id": key_id})

    async def rotate(self, issuer: Principal, tenant: str, key_id: str, grace: timedelta = ROTATION_GRACE) -> Issued:
        """Issue a key like this one; the old one works for `grace` more."""
        found = [key for key in await self._store.find([key_id]) if key.tenant == tenant]
        if not found:
            raise KeyNotFound(f"there is no key '{key_id}'", metadata={"key_id": key_id})
        (old,) = found
        now = self._clock.now()
        if not old.valid_at(now):
            raise KeyRevoked(f"the key '{key_id}' has ended; make a new one", metadata={"key_id": key_id})
        lifetime = old.expires_at - old.created_at if old.expires_at is not None else None
        wanted = NewKey(
            name=old.name, user=old.user, scopes=old.scopes, groups=old.groups, agent=old.agent, lifetime=lifetime
        )
        issued = await self.create(issuer, tenant, wanted, replaces=old.key_id)
        await self._store.end(tenant, key_id, revoked_at=None, expires_at=now + grace)
        return issued


def parse_credential(credential: str) -> tuple[str, str] | None:
    """Return key id and secret, None when the text does not look like a key of ours."""
    prefix, _, rest = credential.partition("-")
    key_id, _, secret = rest.partition("-")
    if prefix != PREFIX or len(key_id) != 2 * ID_BYTES or not secret:
        return None
    return key_id, secret


def _position(token: str) -> tuple[datetime, str]:
    created_at, key_id = decode_token(PAGE, token)
    try:
        return datetime.fromisoformat(str(created_at)), str(key_id)
    except ValueError:
        raise PageTokenInvalid("the page token is damaged; start again without one") from None
