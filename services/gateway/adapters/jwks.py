"""JWTs of an identity provider: keys by JWKS, algorithm, issuer and audience fixed by the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import jwt

from services.chassis.clock import Clock
from services.chassis.errors import Unauthenticated, Unavailable
from services.chassis.identity import Principal
from services.gateway.auth import Caller
from services.gateway.credentials import Lapses

# Keys are fetched again after this long, and at most this often for a key id that is not known.
REFRESH, RETRY = 3600.0, 30.0
LEEWAY = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtRules:
    """What a token must be, and which of its claims say whose it is."""

    issuer: str
    audience: str
    algorithm: str
    tenant_claim: str
    scopes_claim: str
    groups_claim: str


class JwksVerifier:
    """Turns a JWT into its caller."""

    def __init__(
        self, rules: JwtRules, url: str, lapses: Lapses, clock: Clock, client: Callable[[], httpx.AsyncClient]
    ) -> None:
        self._rules = rules
        self._url = url
        self._lapses = lapses
        self._clock = clock
        self._client = client
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = float("-inf")
        self._fetching = asyncio.Lock()

    def recognises(self, credential: str) -> bool:
        return credential.count(".") == 2 and credential.startswith("ey")

    async def verify(self, credential: str) -> Caller:
        """Return the token's caller; raise Unauthenticated when it is forged, foreign, expired or tenantless."""
        try:
            key_id = str(jwt.get_unverified_header(credential).get("kid", ""))
            claims = self._claims(credential, await self._key(key_id))
        except jwt.PyJWTError as error:
            raise Unauthenticated(f"the token is not valid: {error}") from error
        expires = datetime.fromtimestamp(float(claims["exp"]), UTC)
        if self._clock.now().timestamp() >= expires.timestamp() + LEEWAY:
            raise Unauthenticated("the token has expired; get a new one")
        tenant = claims.get(self._rules.tenant_claim)
        if not isinstance(tenant, str) or not tenant:
            raise Unauthenticated(f"the token names no tenant in its claim '{self._rules.tenant_claim}'")
        principal = Principal(
            tenant=tenant,
            user=str(claims["sub"]),
            scopes=_words(claims.get(self._rules.scopes_claim)),
            groups=_words(claims.get(self._rules.groups_claim)),
        )
        return Caller(principal=principal, identity="jwt", lapsed=self._lapses.at(expires))

    def _claims(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        # Expiry is checked by the injected clock, not by PyJWT's own.
        options: Any = {"verify_exp": False, "verify_iat": False, "require": ["exp", "sub", "iss", "aud"]}
        return jwt.decode(
            token,
            key.key,
            algorithms=[self._rules.algorithm],
            issuer=self._rules.issuer,
            audience=self._rules.audience,
            options=options,
        )

    async def _key(self, key_id: str) -> jwt.PyJWK:
        async with self._fetching:
            age = self._clock.monotonic() - self._fetched_at
            if age > REFRESH or (key_id not in self._keys and age > RETRY):
                await self._fetch()
        if key_id not in self._keys:
            raise Unauthenticated("the token is signed by a key that its issuer does not publish")
        return self._keys[key_id]

    async def _fetch(self) -> None:
        self._fetched_at = self._clock.monotonic()
        try:
            async with self._client() as client:
                reply = await client.get(self._url)
                reply.raise_for_status()
                published = jwt.PyJWKSet.from_dict(reply.json())
        except (httpx.HTTPError, ValueError, jwt.PyJWTError) as error:
            if self._keys:
                return  # the keys known so far go on serving
            raise Unavailable("the issuer's keys cannot be read now; try again", retry_after=RETRY) from error
        self._keys = {key.key_id: key for key in published.keys if key.key_id}


def _words(claim: object) -> frozenset[str]:
    """Return a claim's words: a list, or text separated by spaces."""
    if isinstance(claim, str):
        return frozenset(claim.split())
    if isinstance(claim, Iterable):
        return frozenset(str(word) for word in claim)
    return frozenset()
