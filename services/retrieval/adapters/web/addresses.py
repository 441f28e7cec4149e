"""Which addresses are public. What is connected to is checked, not what is written in a URL."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# Not "private" to Python, yet never a page for people: shared address space of carriers, benchmarking, 6to4 relays.
_CLOSED = tuple(map(ipaddress.ip_network, ("100.64.0.0/10", "198.18.0.0/15", "192.88.99.0/24", "0.0.0.0/8")))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")


def is_public(text: str, allowed: Sequence[Network] = ()) -> bool:
    """Return whether an address, as a resolver gives it, lies in the public Internet or in an allowed network.

    IPv6 forms that carry an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo) are judged by that address too.
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return all(_open(one, allowed) for one in (address, *_carried(address)))


def _open(address: Address, allowed: Sequence[Network]) -> bool:
    if any(address.version == network.version and address in network for network in allowed):
        return True
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address in _NAT64):
        return True  # judged by the IPv4 address it carries
    closed = any(address.version == network.version and address in network for network in _CLOSED)
    return address.is_global and not address.is_multicast and not closed


def _carried(address: Address) -> list[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    carried = [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
    if address.teredo is not None:
        carried.extend(address.teredo)
    low = int(address) & 0xFFFFFFFF
    if address in _NAT64 or address in _LOCAL_NAT64 or (int(address) >> 32 == 0 and low > 0xFFFF):
        carried.append(ipaddress.IPv4Address(low))
    return carried
