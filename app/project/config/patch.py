"""PATCH /config, PATCH /global/config: merges a change into the project's or the user's own configuration file.

OpenCode writes `<directory>/config.json`, which it never reads; this server writes the file with the highest precedence.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

from pydantic import ValidationError

from app.project.config import jsonc
from app.project.config.errors import ConfigInvalidError, describe
from app.project.config.parse import Substitution, difference, parse_layer
from app.project.config.sources import FOLDER, ConfigWatch
from app.schema.config import Config
from app.schema.errors import BadRequest
from app.util import environment, secrets
from app.util.beneath import replacing
from app.util.project_files import FileRefused, ProjectBounds, Within, anywhere, open_folder
from app.util.secrets import MASK, all_masked

# The keys in these sections are the user's own patterns and names, which are no secrets.
_PLAIN = ("permission", "keybinds", "tools", "template", "prompt", "description")
_OF_PROMPTS = ("agent", "mode", "command")
_STARTED = ("mcp", "formatter", "lsp", "experimental")
"""Sections that describe programs, and servers that stand for programs."""
_HOST = re.compile(r"[\w+.-]+://[^/?#\s]*")


def masked_config(config: Config, *, may_manage: bool = True) -> dict[str, Any]:
    """The settings, with every API key, header, variable and password masked. Only those who may manage the server see the words
    of commands and the paths of MCP servers' addresses."""
    return {name: _masked_section(name, value, may_manage) for name, value in config.layer().items()}


def _masked_section(name: str, value: Any, may_manage: bool) -> Any:
    """An entry's name says nothing; only its fields say what it is."""
    if name in _OF_PROMPTS:
        return {entry: secrets.masked(fields, plain=_PLAIN) for entry, fields in value.items()}
    shown = value if name in _PLAIN else secrets.masked({name: value})[name]
    return _masked_programs(shown, may_manage) if name in _STARTED else shown


def _masked_programs(value: Any, may_manage: bool, name: str = "") -> Any:
    """`name`: the key of the value, if it is a field."""
    match name, value:
        case "environment" | "env" | "headers", Mapping():
            return all_masked(value)
        case "command", [program, *words] if not may_manage:
            return [program, *(MASK for _ in words)]
        case "url", str() if not may_manage:
            host = _HOST.match(value)
            return f"{host[0] if host else ''}/{MASK}"
        case _, list():
            return [_masked_programs(inner, may_manage) for inner in value]
        case _, Mapping():
            return {key: _masked_programs(inner, may_manage, key) for key, inner in value.items()}
        case _:
            return value


def without_masked(update: dict[str, Any]) -> dict[str, Any]:
    """`update` without masked values, so that a client that sends back what it received changes no secret."""
    kept = {key: value for key, value in update.items() if not _holds_mask(value)}
    return {key: without_masked(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _holds_mask(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_mask, value))
    return isinstance(value, str) and MASK in value


_OWN_FILES = (f"{FOLDER}/opencode.json", f"{FOLDER}/opencode.jsonc", "opencode.json", "opencode.jsonc")
_GLOBAL_FILES = ("opencode.jsonc", "opencode.json", "config.json")
"""As `_OWN_FILES`, the highest precedence first."""


def patch(
    directory: Path, update: dict[str, Any], bounds: ProjectBounds | None = None, environ: Mapping[str, str] = os.environ
) -> Path:
    """Returns the written file: the existing one with the highest precedence, else a new `opencode.json`. Keeps comments, layout
    and `{env:}` references of unchanged values. Raises BadRequest, ConfigJsonError, ConfigInvalidError: also for a file outside
    of `bounds`."""
    check(update)
    path, bounds = _first_file(directory, _OWN_FILES), bounds or ProjectBounds.of(directory, directory)
    named = ConfigWatch(bounds.may_name)
    _merge_into(path, update, bounds.hold, Substitution(environ if bounds.trusted else {}, named.read))
    return path


def patch_global(update: dict[str, Any], environ: Mapping[str, str] = os.environ) -> None:
    """As `patch`, for the user's own file."""
    check(update)
    path = global_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    _merge_into(path, update, anywhere, Substitution(environ, ConfigWatch().read))


def _merge_into(path: Path, update: dict[str, Any], within: Within, values: Substitution) -> None:
    watch = ConfigWatch(within)
    text = watch.read(path) or ""
    if watch.refused:
        raise ConfigInvalidError(str(path), watch.refused[0].reason)
    present = parse_layer(text, str(path), path.parent, values)
    changed = jsonc.merge(text, difference(without_masked(update), present))
    try:
        parse_layer(changed, str(path), path.parent, values)
    except ConfigInvalidError as error:
        raise BadRequest(f"the change does not fit what the file says: {error.message}") from error
    if changed != text:
        _replace(path, changed, within)


def check(update: Any) -> None:
    """`update` must be a valid configuration by itself. The error names the first thing that is wrong."""
    try:
        Config.model_validate(update)
    except ValidationError as error:
        issues = describe(error, update, Config)
        refused = BadRequest(issues[0]["message"], issues[0]["path"], received=update)
        refused.issues = issues
        raise refused from error


def global_file() -> Path:
    return _first_file(environment.opencode_config_dir(), _GLOBAL_FILES)


def _first_file(directory: Path, names: Sequence[str]) -> Path:
    places = [directory / name for name in names]
    existing = filter(os.path.isfile, places)  # a Path raises for what cannot be asked for
    return Path(os.path.realpath(next(existing, directory / "opencode.json")))


def _replace(path: Path, text: str, within: Within) -> None:
    """Replaces the file atomically and keeps its mode."""
    try:
        with open_folder(path.parent, within) as folder:
            _replace_in(folder, path.name, text)
    except FileRefused as refused:
        raise ConfigInvalidError(str(path), refused.reason) from refused
    except OSError as error:
        raise ConfigInvalidError(str(path), f"cannot be written: {error.strerror}") from error


def _replace_in(folder: int, name: str, text: str) -> None:
    """Replaces the file in the open folder, wherever the folder's path leads by now."""
    temporary = f".{name}.{token_hex(4)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with replacing(folder, name, temporary):
        descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), _mode_of(name, folder))


def _mode_of(name: str, folder: int) -> int:
    try:
        return stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & 0o777
    except FileNotFoundError:
        return 0o644
