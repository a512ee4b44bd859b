"""Log entries of clients."""

import logging
from typing import Any

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_LONGEST = 4_000


def client_log(service: str, level: str, message: str, extra: dict[str, Any] | None) -> None:
    """Logs a client's entry as one line."""
    logging.getLogger("client").log(_LEVELS[level], "%s", one_line(f"{service}: {message} {extra or ''}"))


def one_line(text: str) -> str:
    """What a client sent, of bounded length and with line breaks escaped, so that it cannot forge entries."""
    return text.replace("\n", "\\n").replace("\r", "\\r")[:_LONGEST]
