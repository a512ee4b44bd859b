"""When a lost server is asked again. Values in, values out: the clients wait and ask."""

import random
import time

import httpx

from opensession_client.errors import ApiError

FIRST_SECONDS, MOST_SECONDS = 0.25, 10.0
_AWAY = (502, 503, 504)


def is_away(error: Exception) -> bool:
    """The server cannot be reached now, or a proxy says so: later it may answer."""
    if isinstance(error, ApiError):
        return error.status in _AWAY
    return isinstance(error, httpx.TransportError)


class Reconnecting:
    """`most_seconds`: how long the server may be away; None for ever, 0 not at all."""

    def __init__(self, most_seconds: float | None) -> None:
        self._most_seconds = most_seconds
        self._attempt = 0
        self._lost_at: float | None = None

    def worked(self) -> None:
        self._attempt, self._lost_at = 0, None

    def delay(self, error: Exception, hint: float | None = None) -> float:
        """Seconds until the next attempt: twice as many each time, not the same for all clients. `hint` is the server's wish for
        the first. Raises the error when it is none that time heals, or has lasted too long."""
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if not is_away(error) or (self._most_seconds is not None and now - self._lost_at >= self._most_seconds):
            raise error
        longest = min(hint or FIRST_SECONDS * 2**self._attempt, MOST_SECONDS)
        self._attempt += 1
        return longest * random.uniform(0.5, 1)
