"""Rate limits, counted on one server or in Redis."""

import asyncio

import pytest
from redis_server import running_redis

from app.users.login import RateLimits


async def test_a_window_begins_with_its_first_hit(time_of_limits: list[float]) -> None:
    limits = RateLimits()
    assert [await limits.hit("2/minute", "anna") for _ in range(3)] == [0, 0, 60]
    assert await limits.hit("2/minute", "bert") == 0 == await limits.wait("2/minute", "bert")
    time_of_limits[0] += 30
    assert await limits.wait("2/minute", "anna") == 30
    time_of_limits[0] += 30
    assert await limits.wait("2/minute", "anna") == 0 == await limits.hit("2/minute", "anna")


async def test_servers_count_together_in_redis_and_alone_without_it(caplog: pytest.LogCaptureFixture) -> None:
    with running_redis() as redis:
        one, other = RateLimits(redis.url), RateLimits(redis.url)
        assert [await limits.hit("2/hour", "anna") for limits in (one, other)] == [0, 0]
        assert 3500 < await one.wait("2/hour", "anna") <= 3600 and await other.hit("2/hour", "anna") > 0
    async with asyncio.timeout(60):
        assert [await one.hit("2/hour", "anna") for _ in range(3)][:2] == [0, 0], "it counts for itself"
        assert await one.wait("2/hour", "anna") > 0 and "counting in Redis for rate limits failed" in caplog.text
