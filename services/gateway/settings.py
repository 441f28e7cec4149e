"""What can be set: PROCTOR_GATEWAY_<FIELD>."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from services.chassis.settings import Secret

TRACE_ID = "{trace_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the gateway; every field has a default that suits one machine."""

    # Where HTTP is served: "host:port", port 0 for any free one, or "unix:/path".
    listen: str = "127.0.0.1:8080"
    data_dir: Path = Path(".proctor")
    # Database of the keys; empty is a SQLite file in data_dir.
    database_url: Secret = Secret("")
    orchestrator_target: str = "127.0.0.1:9101"
    retrieval_target: str = "127.0.0.1:9102"
    sandbox_target: str = "127.0.0.1:9103"
    approval_target: str = "127.0.0.1:9104"
    # Callers from this machine need no key and are the user `local` of the tenant `local`.
    local_without_key: bool = True
    # Host names, besides loopback ones, under which a caller without a key may address this server.
    local_hosts: tuple[str, ...] = ()
    # Origins of web applications elsewhere that may call with a key, such as "https://app.example".
    cors_origins: tuple[str, ...] = ()
    # Silence on a stream after which a comment keeps proxies from closing it.
    keepalive: timedelta = timedelta(seconds=15)
    # How often revoked and expired keys are looked for; open streams of such a key end within this time.
    key_check: timedelta = timedelta(seconds=2)
    # Largest JSON body and largest upload, in bytes.
    max_body: int = 48 * 1024 * 1024
    max_upload: int = 2 * 1024 * 1024 * 1024
    # Requests a key (or, without one, an address) may make per minute; the burst is as large. 0 is no limit.
    requests_per_minute: int = 1200
    # What Chat Completions does when a person must decide: `tool_call` asks the caller, `wait` waits for the decision.
    chat_approvals: str = "tool_call"
    # Where a run's trace is looked at, such as "https://jaeger.example/trace/{trace_id}"; the run page links to it.
    trace_url: str = ""
    # JWT: accepted when an issuer is set. Keys come from the JWKS URL; the algorithm is fixed here, never by a token.
    jwt_issuer: str = ""
    # The audience that a token must name.
    jwt_audience: str = ""
    # Where the issuer's public keys are.
    jwt_jwks_url: str = ""
    # How tokens are signed, such as RS256 or ES256; never chosen by a token.
    jwt_algorithm: str = "RS256"
    # Claims that carry tenant, scopes and groups.
    jwt_tenant_claim: str = "tenant"
    jwt_scopes_claim: str = "scope"
    jwt_groups_claim: str = "groups"
    # How long open responses may take to end when the gateway stops.
    grace: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        if self.chat_approvals not in {"tool_call", "wait"}:
            raise ValueError(f"CHAT_APPROVALS: expected tool_call or wait, got {self.chat_approvals!r}")
        if self.trace_url and not (self.trace_url.startswith(("https://", "http://")) and TRACE_ID in self.trace_url):
            raise ValueError(f"TRACE_URL: expected an http(s) address with {TRACE_ID} in it, got {self.trace_url!r}")
        if self.jwt_issuer and not (self.jwt_audience and self.jwt_jwks_url):
            raise ValueError("JWT_ISSUER needs JWT_AUDIENCE and JWT_JWKS_URL too")
        if self.jwt_algorithm.upper().startswith(("HS", "NONE")):
            raise ValueError(f"JWT_ALGORITHM: {self.jwt_algorithm} is not a public-key algorithm; use RS256 or ES256")
