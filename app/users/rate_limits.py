"""Rate limits, counted by the library `limits`: in this server's memory, or in Redis for all servers at once."""

import ipaddress
import logging
import math
import time
from functools import cached_property
from typing import TYPE_CHECKING

from app.util.failure_log import FailureLog

if TYPE_CHECKING:
    from limits.aio.strategies import FixedWindowRateLimiter

log = logging.getLogger(__name__)


REDIS_SECONDS = 1.0
"""For an answer, and for a connection."""
FAILURES = 10
WINDOW_SECONDS = 60.0
LIMIT = f"{FAILURES}/minute"
"""Of failed logins of an address."""


class RateLimits:
    """A window begins with the first hit. Without an answer of Redis this server counts for itself."""

    def __init__(self, redis_url: str | None = None) -> None:
        self._redis_url = redis_url
        self._failures = FailureLog(log, "counting in Redis for rate limits")

    async def hit(self, limit: str, *key: str) -> int:
        """Counts one more against `limit` (`30/minute`). Returns 0, or in how many seconds there is room again."""
        return await self._with_redis(limit, key, hits=True)

    async def wait(self, limit: str, *key: str) -> int:
        """The same without counting."""
        return await self._with_redis(limit, key, hits=False)

    async def _with_redis(self, limit: str, key: tuple[str, ...], *, hits: bool) -> int:
        if self._redis is not None:
            try:
                seconds = await _seconds(self._redis, limit, key, hits=hits)
                self._failures.worked()
                return seconds
            except Exception as error:  # noqa: BLE001  of Redis, whatever it is: the limits hold on this server
                self._failures.failed(error)
        return await _seconds(self._memory, limit, key, hits=hits)

    @cached_property
    def _memory(self) -> "FixedWindowRateLimiter":
        from limits.aio.storage import MemoryStorage
        from limits.aio.strategies import FixedWindowRateLimiter

        return FixedWindowRateLimiter(MemoryStorage())

    @cached_property
    def _redis(self) -> "FixedWindowRateLimiter | None":
        if self._redis_url is None:
            return None
        from limits.aio.storage import RedisStorage
        from limits.aio.strategies import FixedWindowRateLimiter

        storage = RedisStorage(
            f"async+{self._redis_url}",
            implementation="redispy",
            key_prefix="opensession",
            socket_timeout=REDIS_SECONDS,
            socket_connect_timeout=REDIS_SECONDS,
        )
        return FixedWindowRateLimiter(storage)


async def _seconds(limiter: "FixedWindowRateLimiter", limit: str, key: tuple[str, ...], *, hits: bool) -> int:
    from limits import parse

    item = parse(limit)
    if await (limiter.hit if hits else limiter.test)(item, *key):
        return 0
    return max(1, math.ceil((await limiter.get_window_stats(item, *key)).reset_time - time.time()))


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
