"""The rate limit for failed logins, per address."""

import ipaddress

from app.api.rate_limits import RateLimits

FAILURES = 10
WINDOW_SECONDS = 60.0
LIMIT = f"{FAILURES}/minute"


class Throttle:
    """After FAILURES wrong logins an address may not try again until WINDOW_SECONDS after the first of them."""

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits

    async def wait(self, address: str) -> int:
        """Seconds until the address may try again; 0 if it may now."""
        return await self._limits.wait(LIMIT, "login", _network(address))

    async def failed(self, address: str) -> None:
        await self._limits.hit(LIMIT, "login", _network(address))


def _network(address: str) -> str:
    """Groups IPv6 addresses by /64, because one client has a whole /64."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
