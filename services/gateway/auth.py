"""Who calls: an API key, a JWT, or nobody from this very machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from services.chassis.errors import PermissionDenied, Unauthenticated
from services.chassis.identity import DEFAULT_TENANT, Principal
from services.gateway.ending import Ending
from services.gateway.headers import header, names

IDENTITY_HEADER = "Proctor-Identity"
LOCAL = "local-no-key"
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})
# A proxy on this machine makes the whole world look local; what it adds gives it away.
_PROXY_HEADERS = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller. `lapsed` is set when its credential stops being valid while a stream is open."""

    principal: Principal
    # How it was known: local-no-key, key, jwt.
    identity: str
    lapsed: Ending = field(default_factory=Ending)
    # Agent that a published key is bound to; empty is any.
    agent: str = ""

    @property
    def bucket(self) -> str:
        """What its requests are counted under."""
        return self.principal.key_id or f"{self.principal.tenant}/{self.principal.user}"


class CredentialVerifier(Protocol):
    """Knows one kind of credential."""

    def recognises(self, credential: str) -> bool:
        """Whether the credential looks like this kind."""
        ...

    async def verify(self, credential: str) -> Caller:
        """Return its caller, or raise Unauthenticated or KeyRevoked."""
        ...


class Authenticator:
    """Turns a connection into a caller, or raises Unauthenticated with what to send."""

    def __init__(
        self, verifiers: Iterable[CredentialVerifier], *, local_without_key: bool, local_hosts: Iterable[str] = ()
    ) -> None:
        self._verifiers = tuple(verifiers)
        self._local_without_key = local_without_key
        self._local_hosts = _LOOPBACK_NAMES | frozenset(local_hosts)

    async def authenticate(self, connection: HTTPConnection, credential: str = "") -> Caller:
        """Return the caller of `connection`, known by `credential` or else by what its headers bring."""
        credential = credential or credential_of(connection)
        if credential:
            for verifier in self._verifiers:
                if verifier.recognises(credential):
                    return await verifier.verify(credential)
            if not (self._local_without_key and self._is_local(connection)):
                raise Unauthenticated("the credential is neither a key of this server nor a token it accepts")
        # OpenAI clients always send some key; a local caller may send any word.
        if self._local_without_key and self._is_local(connection):
            return Caller(principal=LOCAL_PRINCIPAL, identity=LOCAL)
        raise Unauthenticated("send 'Authorization: Bearer <key>'; make a key with 'proctor keys create'")

    def _is_local(self, connection: HTTPConnection) -> bool:
        """Whether this machine itself calls: no proxy speaks for another, and no foreign page drives a browser."""
        present = names(connection.scope)
        if not _PROXY_HEADERS.isdisjoint(present):
            return False
        if not _is_loopback(connection.client.host if connection.client else ""):
            return False
        if _host_name(header(connection.scope, b"host")) not in self._local_hosts:
            return False  # DNS rebinding: a foreign name that resolves to this machine
        origin = header(connection.scope, b"origin")
        if b"origin" in present and urlsplit(origin).hostname not in self._local_hosts:
            raise PermissionDenied(
                f"the page '{origin}' may not use this server without a key", metadata={"origin": origin}
            )
        return True


LOCAL_PRINCIPAL = Principal(tenant=DEFAULT_TENANT, user="local", scopes=frozenset({"*"}))


def credential_of(connection: HTTPConnection) -> str:
    """Return the key or token that the headers bring, empty when they bring none."""
    scheme, _, value = header(connection.scope, b"authorization").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    return header(connection.scope, b"x-api-key").strip()


# The standard library builds lists of networks to tell it; most requests come from few addresses.
@lru_cache(maxsize=1024)
def _is_loopback(host: str) -> bool:
    if not host:  # a unix socket has no peer address; who may connect is decided by its file mode
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    return urlsplit(f"//{host}").hostname or ""
