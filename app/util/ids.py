"""Identifiers in OpenCode's format: `<prefix>_` + 12 hex digits of time + 14 base62 characters.

The 48 bits of time wrap every 795 days (last on 2026-08-14), so ids do not define an order: messages and parts are ordered by
the store's sequence. Between two wraps, ascending ids of one process do ascend, which is what clients sort by. Ids made after
`follow(id)` are newer than that id, even if another process with a clock ahead made it.
"""

import re
import secrets
import threading
from typing import Literal

from app.util import clock

IdKind = Literal["session", "message", "part", "permission", "question", "tool", "webhook", "queued", "pty"]

PREFIXES: dict[IdKind, str] = {
    "session": "ses",
    "message": "msg",
    "part": "prt",
    "permission": "per",
    "question": "que",
    "tool": "tool",
    "webhook": "whk",
    "queued": "qpr",
    "pty": "pty",
}
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LETTER_OF_BYTE = "".join(_ALPHABET[byte % 62] for byte in range(256)).encode()
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_LENGTH = 14
_DRAWN_AT_ONCE = 256
_TIME_MASK = (1 << 48) - 1

_TICKS_OF_A_DAY = 24 * 3600 * 1000 * 4096
_MADE = re.compile(r"[a-z]+_([0-9a-f]{12})[0-9A-Za-z]{14}")

_drawn: list[str] = []
_lock = threading.Lock()
_last_tick = 0


def _ticks(count: int = 1) -> int:
    """Reserves `count` ticks, and returns the first: milliseconds * 4096 + a counter. Strictly increasing, even if the clock
    steps back."""
    global _last_tick
    with _lock:
        first = max(clock.now_ms() * 4096 + 1, _last_tick + 1)
        _last_tick = first + count - 1
        return first


def follow(*made: str) -> None:
    """Makes ascending ids from now on newer than these. Ids of another form, or more than a day ahead, are a client's own and
    change nothing."""
    global _last_tick
    with _lock:
        now = _last_tick = max(clock.now_ms() * 4096, _last_tick)
        for found in filter(None, map(_MADE.fullmatch, made)):
            ahead = (int(found[1], 16) - now) & _TIME_MASK
            if ahead < _TICKS_OF_A_DAY:
                _last_tick = max(_last_tick, now + ahead)


def reserve(count: int) -> tuple[int, str]:
    """For `count` ascending ids, which the database makes: the number of the first one, and the random letters of all."""
    return _ticks(count), _random()


def _random() -> str:
    """Random letters for one id. They are drawn for many ids at once: each system call would let another thread in."""
    while True:
        try:
            return _drawn.pop()
        except IndexError:
            letters = secrets.token_bytes(_DRAWN_AT_ONCE * _RANDOM_LENGTH).translate(_LETTER_OF_BYTE).decode()
            _drawn.extend(letters[at : at + _RANDOM_LENGTH] for at in range(0, len(letters), _RANDOM_LENGTH))


def ascending(kind: IdKind) -> str:
    return f"{PREFIXES[kind]}_{_ticks() & _TIME_MASK:012x}{_random()}"


def descending(kind: IdKind) -> str:
    return f"{PREFIXES[kind]}_{~_ticks() & _TIME_MASK:012x}{_random()}"


def call_id() -> str:
    """A ULID, the format of the tool call ids that the server generates."""
    value = (clock.now_ms() << 80) | secrets.randbits(80)
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))
