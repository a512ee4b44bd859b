"""The config as clients may see it: secrets replaced by a fixed mask."""

import re
from collections.abc import Mapping
from typing import Any

from app.schema.config import Config
from app.util import secrets
from app.util.secrets import MASK, all_masked

# Their keys are the user's own patterns and names: nothing there is a secret.
_PLAIN = ("permission", "keybinds", "tools", "template", "prompt", "description")
_OF_PROMPTS = ("agent", "mode", "command")
_STARTED = ("mcp", "formatter", "lsp", "experimental")
"""Where programs are described, and servers that stand for one."""
_HOST = re.compile(r"[\w+.-]+://[^/?#\s]*")


def masked(config: Config, *, may_manage: bool = True) -> dict[str, Any]:
    """The settings, with every API key, header, variable and password masked. The words of commands and the paths of MCP servers'
    addresses are shown to those alone who may manage the server."""
    return {name: _masked_section(name, value, may_manage) for name, value in config.layer().items()}


def _masked_section(name: str, value: Any, may_manage: bool) -> Any:
    """An entry may have any name: only what stands in it says what it is."""
    if name in _OF_PROMPTS:
        return {entry: secrets.masked(fields, plain=_PLAIN) for entry, fields in value.items()}
    shown = value if name in _PLAIN else secrets.masked({name: value})[name]
    return _masked_programs(shown, may_manage) if name in _STARTED else shown


def _masked_programs(value: Any, may_manage: bool) -> Any:
    if isinstance(value, list):
        return [_masked_programs(inner, may_manage) for inner in value]
    if isinstance(value, Mapping):
        return {name: _masked_program_field(name, inner, may_manage) for name, inner in value.items()}
    return value


def _masked_program_field(name: str, value: Any, may_manage: bool) -> Any:
    match name, value:
        case "environment" | "env" | "headers", Mapping():
            return all_masked(value)
        case "command", [program, *words] if not may_manage:
            return [program, *(MASK for _ in words)]
        case "url", str() if not may_manage:
            host = _HOST.match(value)
            return f"{host[0] if host else ''}/{MASK}"
        case _:
            return _masked_programs(value, may_manage)


def without_masked(update: dict[str, Any]) -> dict[str, Any]:
    """`update` without masked values, so that a client that sends back what it received changes no secret."""
    kept = {key: value for key, value in update.items() if not _holds_mask(value)}
    return {key: without_masked(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _holds_mask(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_mask, value))
    return isinstance(value, str) and MASK in value
