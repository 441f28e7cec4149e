"""Failures of other services as our own, reason and remedy kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from services.chassis.errors import ServiceError, from_rpc_error


class RemoteError(ServiceError):
    """Another service failed; code, reason and message are its own."""

    def __init__(self, error: grpc.RpcError) -> None:
        failure = from_rpc_error(error)
        super().__init__(
            failure.message,
            metadata=failure.metadata,
            retry_after=failure.retry_after,
            violations=failure.violations,
        )
        # These vary by instance here; everywhere else they are fixed by the class.
        self.code = failure.code  # type: ignore[misc]
        self.reason = failure.reason or "UNAVAILABLE"  # type: ignore[misc]


@contextmanager
def remote_failure() -> Iterator[None]:
    """Turn a failed call inside the block into a RemoteError."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise RemoteError(error) from error
