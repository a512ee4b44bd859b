"""What waits in a Redis that does not answer reaches the others late, or not at all: clients see each text once all the same."""

import asyncio
import time
from typing import Any

import pytest
from follower import Follower
from killable import Client
from prompted_model import play
from redis_server import RedisServer
from replica_turns import eventually, messages, new_session
from replicas import Replicas
from turns import say

from app.bus.redis_link import RedisLink

ROUNDS = 6


async def shown(follower: Follower, text: str) -> None:
    await eventually(lambda: any(text in each for each in follower.texts.values()))


@pytest.mark.parametrize("parts", ["delta", "full"])
async def test_text_that_comes_late_is_not_shown_twice(replicas: Replicas, clients: list[Client], parts: str) -> None:
    async with replicas.followers(parts) as followers:
        session = await new_session(clients[0])
        for number in range(ROUNDS):
            replicas.redis.freeze()
            try:
                await clients[0].prompt(session, play([say(f"Of round {number} this is all that is said. ", chunks=4)]))
                for follower in followers:
                    await shown(follower, f"Of round {number}")
            finally:
                replicas.redis.wake()
            await clients[0].prompt(session, play([say(f"Behind round {number}.", chunks=4, delay=0.02)]))
            for follower in followers:
                await shown(follower, f"Behind round {number}.")
        found = await messages(clients[1], session)
        texts = {part["id"]: part["text"] for message in found for part in message["parts"] if part["type"] == "text"}
        for follower in followers:
            assert {part: text for part, text in follower.texts.items() if part in texts} == texts


async def test_what_cannot_be_written_does_not_end_the_announcements(redis: RedisServer) -> None:
    received: list[Any] = []
    sender, receiver = (RedisLink(redis.url, "opensession:test", take) for take in (print, received.append))
    for link in (sender, receiver):
        link.start()
    async with asyncio.timeout(30):
        while not (sender.is_connected and receiver.is_connected):
            await asyncio.sleep(0.01)
        sender.send([0, "/a/\udcff"])
        sent = time.monotonic()
        sender.send([1, sent])
        while received != [[1, sent]]:
            await asyncio.sleep(0.01)
    for link in (sender, receiver):
        await link.stop()
