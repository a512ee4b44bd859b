"""The rate limit for failed logins, per address."""

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable

FAILURES = 10
WINDOW_SECONDS = 60.0
MOST_ADDRESSES = 4096
"""The oldest addresses are evicted first: an attacker with more addresses could not be recognised anyway."""


class Throttle:
    """After FAILURES wrong logins an address may not try again until WINDOW_SECONDS after the first of them."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By address: when its window began, and how many failures are in it."""

    def wait(self, address: str) -> int:
        """Seconds until the address may try again; 0 if it may now."""
        began, failures = self._window(_network(address))
        return math.ceil(began + WINDOW_SECONDS - self._now()) if failures >= FAILURES else 0

    def failed(self, address: str) -> None:
        network = _network(address)
        began, failures = self._window(network)
        self._windows[network] = (began, failures + 1)
        self._windows.move_to_end(network)
        if len(self._windows) > MOST_ADDRESSES:
            self._windows.popitem(last=False)

    def _window(self, network: str) -> tuple[float, int]:
        began, failures = self._windows.get(network, (-math.inf, 0))
        return (began, failures) if self._now() < began + WINDOW_SECONDS else (self._now(), 0)


def _network(address: str) -> str:
    """Groups IPv6 addresses by /64, because one client has a whole /64."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
