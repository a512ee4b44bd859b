"""The config as clients may see it: secrets replaced by a fixed mask."""

from typing import Any

from app.schema.config import Config
from app.util import secrets
from app.util.secrets import MASK

# Their keys are the user's own patterns and names: nothing there is a secret.
_PLAIN = {"permission", "keybinds", "tools", "template", "prompt", "description"}


def masked(config: Config) -> dict[str, Any]:
    """The settings, with every API key, credential header and password masked."""
    shown: dict[str, Any] = secrets.masked(config.layer(), plain=_PLAIN)
    for server in shown.get("mcp", {}).values():
        for part in {"environment", "headers"} & server.keys():
            server[part] = dict.fromkeys(server[part], MASK)
    return shown


def without_masked(update: dict[str, Any]) -> dict[str, Any]:
    """`update` without masked values, so that a client that sends back what it received changes no secret."""
    kept = {key: value for key, value in update.items() if not _holds_mask(value)}
    return {key: without_masked(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _holds_mask(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_mask, value))
    return isinstance(value, str) and MASK in value
