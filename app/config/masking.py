"""The config as clients may see it: secrets replaced by a fixed mask."""

import re
from typing import Any

from app.schema.config import Config

MASK = "********"
_SECRET = re.compile(
    r"token|secret|passw|passphrase|api[-_]?key|access[-_]?key|private[-_]?key|authorization|credential|cookie", re.I
)
SECRET_HEADER = re.compile(rf"{_SECRET.pattern}|auth|key", re.I)
_USER_IN_URL = re.compile(r"(?<=://)[^/?#@\s]+(?=@)")
# Their keys are the user's own patterns and names: nothing there is a secret.
_PLAIN = {"permission", "keybinds", "tools", "template", "prompt", "description"}


def masked(config: Config) -> dict[str, Any]:
    """What was set, with every API key, credential header and password replaced."""
    shown: dict[str, Any] = _masked("", config.layer())
    for server in shown.get("mcp", {}).values():
        for part in {"environment", "headers"} & server.keys():
            server[part] = dict.fromkeys(server[part], MASK)
    return shown


def _masked(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: inner if name in _PLAIN else _masked(_name(key, name), inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_masked("", inner) for inner in value]
    if not isinstance(value, str) or not value:
        return value
    return MASK if _is_secret(key) else _USER_IN_URL.sub(MASK, value)


def _name(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent == "headers" else name


def _is_secret(key: str) -> bool:
    parent, _, header = key.partition(".")
    return bool(SECRET_HEADER.search(header) if parent == "headers" and header else _SECRET.search(key))


def without_masked(update: dict[str, Any]) -> dict[str, Any]:
    """`update` without the values that hold a mask: a client that sends back what it was shown changes no secret."""
    kept = {key: value for key, value in update.items() if not _holds_mask(value)}
    return {key: without_masked(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _holds_mask(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_mask, value))
    return isinstance(value, str) and MASK in value
