"""The only source of wall-clock time, so that tests can set it."""

import time
from collections.abc import Callable
from datetime import datetime

_now: Callable[[], float] = time.time


def now_ms() -> int:
    """Milliseconds since the epoch, the unit of every `time` field of the API."""
    return int(_now() * 1000)


def iso_utc(ms: int) -> str:
    """`2026-01-23T07:27:35.000Z`: ISO-8601, UTC, three decimals."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(ms // 1000))}.{ms % 1000:03d}Z"


def local_time() -> datetime:
    """The local date and time, for the system prompt."""
    return datetime.fromtimestamp(_now()).astimezone()


def set_source(source: Callable[[], float] = time.time) -> None:
    """Replaces the source of seconds since the epoch; without an argument, restores the system clock."""
    global _now
    _now = source
