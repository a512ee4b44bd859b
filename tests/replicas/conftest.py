"""Redis and replicas for the tests of several servers that act as one."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from killable import Client
from postgres import PostgresServer
from redis_server import RedisServer, running_redis
from replicas import Replicas, running_replicas


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    with running_redis() as running:
        yield running


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, redis: RedisServer) -> Iterator[Replicas]:
    """Three, for all tests of a module; whoever ends one starts it again."""
    with running_replicas(tmp_path_factory.mktemp("replicas"), postgres, redis) as running:
        yield running


@pytest.fixture
async def clients(replicas: Replicas) -> AsyncIterator[list[Client]]:
    """One of each replica. Those that a test has ended start again."""
    await asyncio.to_thread(replicas.start)
    async with replicas.clients() as made:
        yield made
