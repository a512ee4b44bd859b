"""The network addresses that a tool may reach: public ones only, to prevent SSRF."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[list[Address]]]

_ALSO_DENIED = (
    ip_network("192.0.0.0/24"),  # protocol assignments; contains Oracle's metadata service
    ip_network("168.63.129.16/32"),  # Azure's platform service
    ip_network("192.88.99.0/24"),  # relays to IPv6, which are no more
    ip_network("3fff::/20"),  # documentation
)
_NAT64 = ip_network("64:ff9b::/96")


async def resolve(host: str, port: int) -> list[Address]:
    """All addresses of a host, in the order to try them. Raises OSError if there is none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(entry[4][0]) for entry in found))


def is_public(address: Address) -> bool:
    """False for loopback, private, shared (CGNAT), link-local (cloud metadata), multicast, reserved and unspecified addresses.
    For an IPv6 address that contains an IPv4 address, the latter decides.
    """
    embedded = _embedded_ipv4(address)
    if embedded is not None:
        return is_public(embedded)
    if any(address in network for network in _ALSO_DENIED):
        return False
    site_local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or site_local)


def _embedded_ipv4(address: Address) -> IPv4Address | None:
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)
