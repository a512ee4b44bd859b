"""Which network addresses a tool may reach: those of the public internet, nothing of the machine or the network it stands in."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[list[Address]]]

_ALSO_REFUSED = (
    ip_network("192.0.0.0/24"),  # protocol assignments; Oracle's metadata service answers here
    ip_network("168.63.129.16/32"),  # Azure's platform address, public by its number only
)
_NAT64 = ip_network("64:ff9b::/96")


async def resolve(host: str, port: int) -> list[Address]:
    """All addresses of a host, in the order to try them. Raises OSError when it has none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(entry[4][0]) for entry in found))


def is_public(address: Address) -> bool:
    """False for loopback, private, shared (CGNAT), link-local and with it metadata, multicast, reserved and unspecified ones;
    an IPv6 address that carries an IPv4 one is judged by that.
    """
    carried = _carried_ipv4(address)
    if carried is not None:
        return is_public(carried)
    if any(address in network for network in _ALSO_REFUSED):
        return False
    site_local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or site_local)


def _carried_ipv4(address: Address) -> IPv4Address | None:
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)
