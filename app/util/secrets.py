"""Secret redaction: finds the secret values of a tree by their keys, and masks them."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

MASK = "********"
SHORTEST = 6
"""Characters. A shorter value is no real secret, and would be found in any text."""

_SECRET = (
    r"^key$|(api|access|private)[-_]?key|secret|passw|passphrase|token(?!iz|[-_]?limit)|authorization|[-_]auth$|credential|cookie"
)
_SECRET_NAME = re.compile(_SECRET, re.IGNORECASE)
_SECRET_HEADER = re.compile(rf"{_SECRET}|auth|key", re.IGNORECASE)
_LOGIN_IN_URL = re.compile(r"(?<=://)[^/?#@\s]+(?=@)")


def masked(value: Any, *, plain: Collection[str] = ()) -> Any:
    """The same tree with MASK for every string under a secret key and for every login in a URL. Values under a key in `plain`
    stay as they are."""
    if isinstance(value, Mapping):
        return {name: inner if name in plain else _masked_field(name, inner, plain) for name, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, plain=plain) for inner in value]
    return _LOGIN_IN_URL.sub(MASK, value) if isinstance(value, str) else value


def _masked_field(name: str, value: Any, plain: Collection[str]) -> Any:
    if name == "headers" and isinstance(value, Mapping):
        return masked_headers(value)
    return MASK if value and isinstance(value, str) and _SECRET_NAME.search(name) else masked(value, plain=plain)


def masked_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """HTTP headers: more names mean a secret than in other mappings."""
    return {name: MASK if value and _SECRET_HEADER.search(name) else masked(value) for name, value in headers.items()}


def secrets_of(value: Any, *, headers: bool = False) -> Iterator[str]:
    """Every string of a tree that `masked` hides, without its scheme (`Bearer`) or user name."""
    names = _SECRET_HEADER if headers else _SECRET_NAME
    if isinstance(value, Mapping):
        for name, inner in value.items():
            secret = isinstance(inner, str) and names.search(name)
            yield from _alone(inner) if secret else secrets_of(inner, headers=name == "headers")
    elif isinstance(value, list):
        for inner in value:
            yield from secrets_of(inner)
    elif isinstance(value, str) and (login := _LOGIN_IN_URL.search(value)):
        yield from _alone(login[0].partition(":")[2])


def _alone(secret: str) -> Iterator[str]:
    bare = secret.rpartition(" ")[2]
    if len(bare) >= SHORTEST:
        yield bare
