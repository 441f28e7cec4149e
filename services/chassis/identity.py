"""Who is calling: the principal, the signed token that carries it between services, and how a handler reads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache

import jwt

from services.chassis.clock import Clock
from services.chassis.errors import PermissionDenied, Unauthenticated

METADATA_KEY = "authorization"
ISSUER = "proctor"
ALGORITHM = "HS256"
DEFAULT_TENANT = "local"
# Tokens that are kept, to be neither signed nor read again for each call.
CACHED = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """On whose behalf a call is made. `actor` is the service that acts for the user, empty for the user itself."""

    tenant: str
    user: str
    scopes: frozenset[str] = field(default_factory=frozenset)
    groups: frozenset[str] = field(default_factory=frozenset)
    key_id: str = ""
    actor: str = ""

    def require(self, scope: str) -> None:
        """Raise PermissionDenied when the principal lacks `scope`; the scope `*` holds them all."""
        if scope not in self.scopes and "*" not in self.scopes:
            raise PermissionDenied(
                f"'{self.user}' lacks the scope '{scope}'; use a key that has it",
                metadata={"scope": scope},
            )


class IdentitySigner:
    """Mints the short-lived token that one service hands to the next."""

    def __init__(self, key: str, clock: Clock, lifetime: timedelta = timedelta(minutes=5)) -> None:
        self._key = key
        self._clock = clock
        self._lifetime = lifetime.total_seconds()
        self._signed = lru_cache(maxsize=CACHED)(self._sign)

    def mint(self, principal: Principal) -> str:
        """Return a signed token for `principal` that is valid for half the lifetime at least.

        Within half a lifetime the same principal gets the same token, so that neither side computes it for each call.
        """
        half = self._lifetime / 2
        return self._signed(principal, self._clock.now().timestamp() // half * half)

    def _sign(self, principal: Principal, issued: float) -> str:
        claims: dict[str, object] = {
            "iss": ISSUER,
            "aud": ISSUER,
            "sub": principal.user,
            "tenant": principal.tenant,
            "scopes": sorted(principal.scopes),
            "groups": sorted(principal.groups),
            "key": principal.key_id,
            "iat": int(issued),
            "exp": int(issued + self._lifetime),
        }
        if principal.actor:
            claims["act"] = {"sub": principal.actor}
        return jwt.encode(claims, self._key, algorithm=ALGORITHM)

    def metadata(self, principal: Principal) -> tuple[tuple[str, str], ...]:
        """Return call metadata that carries `principal`."""
        return ((METADATA_KEY, f"Bearer {self.mint(principal)}"),)


class IdentityVerifier:
    """Reads and checks what IdentitySigner minted."""

    def __init__(self, key: str, clock: Clock) -> None:
        self._key = key
        self._clock = clock
        self._read = lru_cache(maxsize=CACHED)(self._check)

    def verify(self, token: str) -> Principal:
        """Return the principal of `token`, or raise Unauthenticated when it is forged, foreign or expired."""
        principal, expires = self._read(token)
        if self._clock.now().timestamp() >= expires:
            raise Unauthenticated("the service token has expired; mint a new one")
        return principal

    def _check(self, token: str) -> tuple[Principal, float]:
        """Return what a token says, and until when; a failure is raised and not kept."""
        try:
            # Expiry is checked by `verify` against the injected clock, not PyJWT's own.
            claims = jwt.decode(
                token,
                self._key,
                algorithms=[ALGORITHM],
                audience=ISSUER,
                issuer=ISSUER,
                options={"verify_exp": False, "verify_iat": False, "require": ["exp", "sub", "aud", "iss"]},
            )
        except (jwt.PyJWTError, ValueError) as error:
            raise Unauthenticated(f"the service token is not valid: {error}") from error
        principal = Principal(
            tenant=str(claims.get("tenant", "")),
            user=str(claims["sub"]),
            scopes=frozenset(claims.get("scopes", ())),
            groups=frozenset(claims.get("groups", ())),
            key_id=str(claims.get("key", "")),
            actor=str(claims.get("act", {}).get("sub", "")),
        )
        return principal, float(claims["exp"])


# Set by the identity interceptor for the duration of one call; a task inherits its parent's value.
_current: ContextVar[Principal] = ContextVar("principal")


def current_principal() -> Principal:
    """Return the principal of the call being served, or raise Unauthenticated outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise Unauthenticated("this call carries no identity; send a signed service token") from None


@contextmanager
def acting_as(principal: Principal) -> Iterator[None]:
    """Make `principal` the current one inside the block. Never hold it open across a `yield` of a generator."""
    token = _current.set(principal)
    try:
        yield
    finally:
        _current.reset(token)


def become(principal: Principal) -> None:
    """Make `principal` the current one for the rest of the running task. For code that owns its whole task."""
    _current.set(principal)
