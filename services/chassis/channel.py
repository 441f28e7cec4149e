"""Client channels: bounded, kept alive, spread over replicas, retried where nothing has come back yet."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import grpc

from services.chassis.clock import Clock
from services.chassis.interceptors.client import MeasuredChannel, Outgoing
from services.chassis.telemetry import Telemetry

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
DEFAULT_TIMEOUT = 30.0
# The server allows a ping every 10 s (serve.py); a client that pings more often is sent away with GOAWAY.
KEEPALIVE_MS = 30_000
KEEPALIVE_TIMEOUT_MS = 10_000

# gRPC retries only until the first response message, and only for a status that says nothing was done.
SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Mutual TLS between hosts: PEM files of our certificate, its key, and the authority that signs peers."""

    certificate: Path
    key: Path
    authority: Path

    def channel_credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            self.authority.read_bytes(), self.key.read_bytes(), self.certificate.read_bytes()
        )

    def server_credentials(self) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials(
            [(self.key.read_bytes(), self.certificate.read_bytes())],
            root_certificates=self.authority.read_bytes(),
            require_client_auth=True,
        )


def open_channel(
    target: str,
    telemetry: Telemetry,
    clock: Clock,
    *,
    tls: Tls | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    max_request_bytes: int = 0,
) -> grpc.aio.Channel:
    """Return a channel to `target` (`unix:/path` or `host:port`); the caller closes it.

    Unary calls without a timeout get `timeout` seconds. Unix sockets never use TLS: the file's mode guards them.
    """
    options = [
        ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", max(MAX_MESSAGE_BYTES, max_request_bytes)),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        # A service that is back is found while the retries above still try.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]
    if tls is None or target.startswith("unix:"):
        channel = grpc.aio.insecure_channel(target, options=options)
    else:
        channel = grpc.aio.secure_channel(target, tls.channel_credentials(), options=options)
    return MeasuredChannel(channel, Outgoing(telemetry, clock, timeout=timeout))
