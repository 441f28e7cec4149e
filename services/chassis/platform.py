"""What a service is built on: clock, ids, telemetry, identity and channels, handed to its `build`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import grpc

from services.chassis.channel import Tls, open_channel
from services.chassis.clock import Clock, Ids, RandomIds, SystemClock
from services.chassis.identity import IdentitySigner, IdentityVerifier
from services.chassis.settings import Secret, load
from services.chassis.telemetry import Telemetry, TelemetrySettings, capture_content, open_telemetry

# HS256 wants a key at least as long as its digest.
MIN_KEY_LENGTH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformSettings:
    """`PROCTOR_…`: what all services of one suite share."""

    # Signs the identity that services hand on to one another; 32 characters or more, the same for all of them.
    signing_key: Secret
    # DEBUG, INFO, WARNING or ERROR; logs are JSON lines on standard error.
    log_level: str = "INFO"
    # Addresses of services that must answer before this one is built; `proctor up` sets it.
    start_after: tuple[str, ...] = ()
    # PEM files of mutual TLS between hosts: our certificate, its key, and the authority that signs peers.
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_authority: Path | None = None

    def __post_init__(self) -> None:
        if len(self.signing_key) < MIN_KEY_LENGTH:
            raise ValueError(f"SIGNING_KEY: needs {MIN_KEY_LENGTH} characters or more, as `openssl rand -hex 32` makes")
        files = (self.tls_certificate, self.tls_key, self.tls_authority)
        if any(files) and not all(files):
            raise ValueError("TLS_CERTIFICATE, TLS_KEY and TLS_AUTHORITY go together: set all three or none")

    @property
    def tls(self) -> Tls | None:
        """The TLS files, or None when the suite runs on one host."""
        if self.tls_certificate and self.tls_key and self.tls_authority:
            return Tls(certificate=self.tls_certificate, key=self.tls_key, authority=self.tls_authority)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Everything a service takes from its surroundings; tests make one with their own clock, ids and telemetry."""

    clock: Clock
    ids: Ids
    telemetry: Telemetry
    signer: IdentitySigner
    verifier: IdentityVerifier
    tls: Tls | None = None

    def channel(self, target: str, *, max_request_bytes: int = 0) -> grpc.aio.Channel:
        """Return a client channel to `target` with our interceptors; the caller closes it.

        `max_request_bytes` lets larger requests out, for a service that takes them.
        """
        return open_channel(target, self.telemetry, self.clock, tls=self.tls, max_request_bytes=max_request_bytes)


def open_platform(service: str, environ: Mapping[str, str]) -> Platform:
    """Return the platform that the environment describes; raises SettingsError when it describes none."""
    shared = load(PlatformSettings, "", environ)
    clock = SystemClock()
    return Platform(
        clock=clock,
        ids=RandomIds(),
        telemetry=open_telemetry(
            service,
            suite_version(),
            load(TelemetrySettings, "telemetry", environ),
            content=capture_content(environ),
        ),
        signer=IdentitySigner(shared.signing_key, clock),
        verifier=IdentityVerifier(shared.signing_key, clock),
        tls=shared.tls,
    )


def suite_version() -> str:
    """Return the installed version of Proctor, `0` in a tree that was never installed."""
    try:
        return version("proctor")
    except PackageNotFoundError:
        return "0"
