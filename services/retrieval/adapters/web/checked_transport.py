"""An HTTP transport that connects to public addresses only.

The check sits where the connection is made: a name is resolved, every address of the answer is judged, and one of the
judged addresses is what is connected to. Redirects make new connections, and a name that answers differently the next
time (DNS rebinding) is judged the next time. TLS still verifies the name.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import httpcore
import httpx

from services.retrieval.adapters.web.addresses import Network, is_public

Resolve = Callable[[str, int], Awaitable[list[str]]]


class AddressForbidden(Exception):
    """The name leads to an address that is not public."""


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a name; the system's resolver also reads odd forms such as 0x7f.1 and 2130706433."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connects for httpcore, after judging the address."""

    def __init__(self, allowed: Sequence[Network], resolver: Resolve) -> None:
        self._backend = httpcore.AnyIOBackend()
        self._allowed = allowed
        self._resolve = resolver

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._resolve(host, port)
        except (OSError, TimeoutError) as failure:
            raise httpcore.ConnectError(f"'{host}' has no address") from failure
        # One private address among public ones is an attack, not a choice.
        if not addresses or not all(is_public(address, self._allowed) for address in addresses):
            raise AddressForbidden(host)
        return await self._backend.connect_tcp(addresses[0], port, timeout, local_address, socket_options)

    async def connect_unix_socket(self, *arguments: Any, **named: Any) -> httpcore.AsyncNetworkStream:
        raise AddressForbidden("unix socket")

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


class CheckedTransport(httpx.AsyncHTTPTransport):
    """httpx over CheckedBackend."""

    def __init__(
        self, *, allowed: Sequence[Network] = (), resolver: Resolve = resolve, context: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context or httpx.create_ssl_context(trust_env=False),
            max_connections=20,
            max_keepalive_connections=0,  # a kept connection would outlive the judgement of its name
            network_backend=CheckedBackend(allowed, resolver),
        )
