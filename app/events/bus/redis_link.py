"""Redis between the servers of one database: announcements reach the other servers at once. Nothing depends on it, because lost
ones are read from the journal. redis-py is in the extra `replicas`."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from app.util.tasks import TaskSet

if TYPE_CHECKING:
    from redis.asyncio import Redis


ANSWER_SECONDS = 2.0


class RedisUnusable(Exception):
    """The message says what to do. Servers work on without Redis: they read each other's events from the database."""


def describe_redis(url: str) -> str:
    """Its version and address. A message is published and received, as the event bus does. Raises RedisUnusable."""
    try:
        import redis
    except ImportError as error:
        raise RedisUnusable(f"Redis needs redis-py ({error}): pip install 'opensession[replicas]'") from error
    client = redis.Redis.from_url(url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS)
    try:
        version = client.info("server")["redis_version"]
        _require_pubsub(client)
    except (redis.RedisError, OSError) as error:
        raise RedisUnusable(f"Redis at {address_of(url)} cannot be used: {error}") from error
    finally:
        client.close()
    return f"Redis {version} at {address_of(url)}"


def _require_pubsub(client: Any) -> None:
    """Raises TimeoutError if a published message does not arrive."""
    channel = f"opensession:check:{secrets.token_hex(8)}"
    with client.pubsub() as subscriber:
        subscriber.subscribe(channel)
        subscriber.get_message(timeout=ANSWER_SECONDS)  # the confirmation
        client.publish(channel, "?")
        if subscriber.get_message(timeout=ANSWER_SECONDS) is None:
            raise TimeoutError(f"a published message did not arrive within {ANSWER_SECONDS:g} s")


def address_of(url: str) -> str:
    """Without the login."""
    parts = urlsplit(url)
    return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"


log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
MAX_WAITING = 10_000
"""Items that may wait to be sent. More are dropped: the journal has them."""


class RedisLink:
    """`receive` is called with each item that another server sent, in the order of sending."""

    def __init__(self, url: str, channel: str, receive: Callable[[list[Any]], None]) -> None:
        self._url = url
        self._channel = channel
        self._receive = receive
        self._origin = secrets.token_hex(8)
        self._items: list[orjson.Fragment] = []
        self._any = asyncio.Event()
        self._tasks = TaskSet()
        self.is_connected = False

    def start(self) -> None:
        for work in (self._send_loop, self._receive_loop):
            self._tasks.start(work(), f"redis: {work.__name__}")

    async def stop(self) -> None:
        await self._tasks.cancel()

    def send(self, item: list[Any]) -> None:
        """Returns at once. An item that cannot be JSON, as with a directory whose name is no UTF-8, is left to the journal."""
        if not self.is_connected or len(self._items) >= MAX_WAITING:
            return
        try:
            self._items.append(orjson.Fragment(orjson.dumps(item)))
        except orjson.JSONEncodeError as error:
            log.error("an announcement cannot be written for other servers (%s): they read it from the journal", error)
            return
        self._any.set()

    async def _send_loop(self) -> None:
        client = self._client()
        while True:
            await self._any.wait()
            self._any.clear()
            items, self._items = self._items, []
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await client.publish(self._channel, orjson.dumps([self._origin, items]))
            except _errors() as error:
                reason = str(error) or type(error).__name__
                log.warning("Redis did not take an announcement (%s): other servers read it from the journal", reason)
                await asyncio.sleep(RETRY_SECONDS)

    async def _receive_loop(self) -> None:
        while True:
            try:
                await self._receive_until_it_breaks()
            except _errors() as error:
                if self.is_connected:
                    log.warning("Redis is away (%s): events of other servers come from the journal until it is back", error)
            finally:
                self.is_connected = False
            await asyncio.sleep(RETRY_SECONDS)

    async def _receive_until_it_breaks(self) -> None:
        async with self._client() as client, client.pubsub() as subscriber:
            async with asyncio.timeout(ANSWER_SECONDS):
                await subscriber.subscribe(self._channel)
            self.is_connected = True
            log.info("announcing events to other servers through Redis")
            was_pinged = False
            while True:
                message = await subscriber.get_message(ignore_subscribe_messages=True, timeout=ANSWER_SECONDS)
                if message is None and was_pinged:
                    raise TimeoutError(f"it has answered nothing for {ANSWER_SECONDS:g} s")
                if message is None:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        await subscriber.ping()  # the answer comes as a message
                elif message["type"] == "message":
                    self._take(message["data"])
                was_pinged = message is None

    def _take(self, data: bytes) -> None:
        origin, items = orjson.loads(data)
        if origin == self._origin:
            return
        for item in items:
            try:
                self._receive(item)
            except Exception:
                log.exception("an announcement of another server could not be read: %.80r", item)

    def _client(self) -> "Redis":
        from redis.asyncio import Redis

        return Redis.from_url(self._url, socket_connect_timeout=ANSWER_SECONDS, socket_timeout=None, health_check_interval=0)


def _errors() -> tuple[type[Exception], ...]:
    from redis import RedisError

    return RedisError, OSError, TimeoutError
