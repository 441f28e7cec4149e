"""Where a user's base URL may lead: to public addresses, judged by what is connected to, not by what is written."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from services.orchestrator.models.errors import AddressForbidden, UrlForbidden

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# Returns the addresses of a host and port. Raises OSError when there are none.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

# Not private to Python, yet no place of a public service: carriers' shared space, benchmarking, 6to4 relays, "this".
_CLOSED = tuple(map(ipaddress.ip_network, ("100.64.0.0/10", "198.18.0.0/15", "192.88.99.0/24", "0.0.0.0/8")))
_NAT64 = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48")))


async def resolve(host: str, port: int) -> Sequence[str]:
    """Ask the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class UrlGuard:
    """Holds base URLs to public addresses and to the networks that the operator allows."""

    def __init__(self, allowed: Sequence[Network] = (), lookup: Resolve = resolve) -> None:
        self._allowed = tuple(allowed)
        self._lookup = lookup

    async def check(self, url: str) -> None:
        """Raise UrlForbidden when `url` is no http(s) URL or any address of its host is not public."""
        parts = urlsplit(url)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise UrlForbidden(f"the base URL '{url}' has no valid port") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
            raise UrlForbidden(f"the base URL '{url}' must be http(s)://HOST/PATH, without user or password")
        try:
            addresses = await self._lookup(parts.hostname, port)
        except (OSError, UnicodeError) as error:
            raise UrlForbidden(f"the host '{parts.hostname}' of the base URL cannot be resolved") from error
        if not addresses or not all(self.allows(address) for address in addresses):
            raise UrlForbidden(f"the base URL '{url}' leads to a private network; use a public address")

    def allows(self, text: str) -> bool:
        """Tell whether an address may be connected to; the IPv4 address that an IPv6 one carries counts too."""
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return False
        return all(self._open(one) for one in (address, *_carried(address)))

    def open_socket(
        self, info: tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]
    ) -> socket.socket:
        """Return a socket for a resolved address, or raise AddressForbidden: the check that a second answer of the
        name server cannot get round.
        """
        family, kind, protocol, _, address = info
        if not self.allows(str(address[0])):
            raise AddressForbidden(f"{address[0]} is not a public address")
        return socket.socket(family, kind, protocol)

    def _open(self, address: Address) -> bool:
        if any(address.version == network.version and address in network for network in self._allowed):
            return True
        if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address in _NAT64[0]):
            return True  # judged by the IPv4 address it carries
        closed = any(address.version == network.version and address in network for network in _CLOSED)
        return address.is_global and not address.is_multicast and not closed


def _carried(address: Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses inside an IPv6 one: mapped, 6to4, Teredo, NAT64, compatible."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    carried = [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
    if address.teredo is not None:
        carried.extend(address.teredo)
    low = int(address) & 0xFFFFFFFF
    if any(address in network for network in _NAT64) or (int(address) >> 32 == 0 and low > 0xFFFF):
        carried.append(ipaddress.IPv4Address(low))
    return carried
