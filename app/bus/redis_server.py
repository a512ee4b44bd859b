"""The Redis that a server is given: whether it answers, and which it is. redis-py is in the extra `replicas`."""

import secrets
from typing import Any
from urllib.parse import urlsplit

ANSWER_SECONDS = 2.0


class RedisUnusable(Exception):
    """The message says what to do. Servers work on without Redis: they read each other's events from the database."""


def find_redis(url: str) -> str:
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
    """Raises TimeoutError when what is published does not arrive."""
    channel = f"opensession:check:{secrets.token_hex(8)}"
    with client.pubsub() as subscriber:
        subscriber.subscribe(channel)
        subscriber.get_message(timeout=ANSWER_SECONDS)  # the confirmation
        client.publish(channel, "?")
        if subscriber.get_message(timeout=ANSWER_SECONDS) is None:
            raise TimeoutError(f"a published message did not arrive within {ANSWER_SECONDS:g} s")


def address_of(url: str) -> str:
    """Without its login."""
    parts = urlsplit(url)
    return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"
