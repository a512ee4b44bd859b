"""Tokens for one event stream each: a browser's EventSource can send no header, and what stands in an address gets into logs."""

import secrets
from collections import OrderedDict

from app.util import clock

LIFETIME_MS = 30_000
MOST = 1_000


class EventTokens:
    def __init__(self) -> None:
        self._expiries: OrderedDict[str, int] = OrderedDict()

    def issue(self) -> tuple[str, int]:
        """A token, and when it expires (epoch milliseconds). Of too many that wait, the oldest goes."""
        token = secrets.token_urlsafe(32)
        expires = self._expiries[token] = clock.now_ms() + LIFETIME_MS
        if len(self._expiries) > MOST:
            self._expiries.popitem(last=False)
        return token, expires

    def redeem(self, token: str) -> bool:
        """Only once. A look-up in a dict tells by its time no more than whether there is such a token."""
        return self._expiries.pop(token, 0) > clock.now_ms()
