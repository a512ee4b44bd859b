"""Secret redaction: finds the secret values of a tree by their keys and places, and masks them. And clients' log entries."""

import base64
import json
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any
from urllib.parse import quote, unquote, unquote_plus

MASK = "********"
SHORTEST = 6
"""In characters. A shorter value is no real secret, and would be found in any text."""

_SECRET_NAME = re.compile(
    r"(?<!cache)(?<!cache[-_])key$|(api|access|private)[-_]?key|secret|passw|passphrase|token(?!iz|[-_]?limit)|authorization|auth$"
    r"|credential|cookie|bearer|signature",
    re.IGNORECASE,
)
_LOGIN_IN_URL = re.compile(r"(?<=://)[^/?#\s]+(?=@)")
_QUERY_IN_URL = re.compile(r"(://(?:(?!://)[^?#\s])*\?)([^#\s]+)")


def masked(value: Any, *, plain: Collection[str] = ()) -> Any:
    """The same tree with MASK for every string under a secret key, in a list too, every HTTP header, and the login and query of
    every URL. Values under a key in `plain` stay as they are."""
    if isinstance(value, Mapping):
        return {name: inner if name in plain else _masked_field(name, inner, plain) for name, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, plain=plain) for inner in value]
    return _masked_text(value) if isinstance(value, str) else value


def _masked_field(name: str, value: Any, plain: Collection[str]) -> Any:
    if name == "headers" and isinstance(value, Mapping):
        return all_masked(value)
    if not _SECRET_NAME.search(name):
        return masked(value, plain=plain)
    if isinstance(value, list):
        return [_masked_field(name, inner, plain) for inner in value]
    return MASK if value and isinstance(value, str) else masked(value, plain=plain)


def _masked_text(text: str) -> str:
    return _QUERY_IN_URL.sub(rf"\1{MASK}", _LOGIN_IN_URL.sub(MASK, text)) if "://" in text else text


def all_masked(values: Mapping[str, Any]) -> dict[str, Any]:
    """For HTTP headers, or variables, whose names do not show which are secret."""
    return {name: MASK if value else value for name, value in values.items()}


def without_secrets(value: Any) -> Any:
    """The same tree without what `masked` hides; an address is kept without its login and query."""
    if isinstance(value, Mapping):
        return {name: without_secrets(inner) for name, inner in value.items() if not _is_secret(name, inner)}
    if isinstance(value, list):
        return [without_secrets(inner) for inner in value]
    return _masked_text(value).replace(f"{MASK}@", "").replace(f"?{MASK}", "") if isinstance(value, str) else value


def _is_secret(name: str, value: Any) -> bool:
    if name == "headers":
        return isinstance(value, Mapping)
    return any(isinstance(one, str) for one in _each(value)) and bool(_SECRET_NAME.search(name))


def _each(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def secrets_of(value: Any, *, headers: bool = False) -> Iterator[str]:
    """Every string of a tree that `masked` hides, without its scheme (`Bearer`) or user name. `headers`: `value` has headers."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            is_secret = headers or _SECRET_NAME.search(name)
            for one in _each(inner):
                yield from _bare(one) if is_secret and isinstance(one, str) else secrets_of(one, headers=name == "headers")
    elif isinstance(value, list):
        for inner in value:
            yield from secrets_of(inner)
    elif isinstance(value, str):
        yield from _of_address(value)


def words_of_secrets(command: Sequence[str]) -> Iterator[str]:
    """The X in `--token X`, `--token=X` and `NAME=X`, in `--header 'NAME: X'`, and in an address."""
    for before, word in pairwise(command):
        name, equals, value = word.partition("=")
        if equals or (before.startswith("-") and _SECRET_NAME.search(before)):
            yield from _bare(value if equals else name)
        header, _, sent = word.partition(":")
        if before in ("-H", "--header") or _SECRET_NAME.search(header):
            yield from _bare(sent)
        yield from _of_address(word)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, also as JSON and addresses write them. Replaces the longest first: a secret may begin another
    one."""
    written = ((secret, json.dumps(secret)[1:-1], quote(secret, safe="", errors="replace")) for secret in secrets)
    for form in sorted(set(chain.from_iterable(written)), key=len, reverse=True):
        text = text.replace(form, MASK)
    return text


def _of_address(text: str) -> Iterator[str]:
    """A login's password, and what a client sends of the login (basic auth)."""
    if login := _LOGIN_IN_URL.search(text):
        user, _, password = login[0].partition(":")
        sent = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode(errors="replace")).decode()
        yield from {*_bare(password), *_bare(unquote(password)), *_bare(sent)}
    if query := _QUERY_IN_URL.search(text):
        for field in query[2].split("&"):
            value = field.partition("=")[2]
            yield from {*_bare(value), *_bare(unquote_plus(value))}


def _bare(secret: str) -> Iterator[str]:
    bare = secret.rpartition(" ")[2]
    if len(bare) >= SHORTEST:
        yield bare


_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_LONGEST = 4_000


def client_log(service: str, level: str, message: str, extra: dict[str, Any] | None) -> None:
    """Logs a client's entry as one line."""
    logging.getLogger("client").log(_LEVELS[level], "%s", one_line(f"{service}: {message} {extra or ''}"))


def one_line(text: str) -> str:
    """A client's text, of bounded length and with line breaks escaped, so that it cannot forge entries."""
    return text.replace("\n", "\\n").replace("\r", "\\r")[:_LONGEST]
