"""PATCH /config, PATCH /global/config: merges a change into the project's or the user's own configuration file.

OpenCode writes `<directory>/config.json`, which it never reads; this server writes the file with the highest precedence.
"""

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from app.config import jsonc
from app.config.errors import ConfigInvalidError
from app.config.issues import describe
from app.config.masking import without_masked
from app.config.merge import difference
from app.config.parse import Substitution, parse_layer
from app.config.sources import FOLDER
from app.config.watch import ConfigWatch
from app.schema.config import Config
from app.schema.errors import BadRequest
from app.util import paths

_OWN_FILES = (f"{FOLDER}/opencode.json", f"{FOLDER}/opencode.jsonc", "opencode.json", "opencode.jsonc")
_GLOBAL_FILES = ("opencode.jsonc", "opencode.json", "config.json")
"""As `_OWN_FILES`, the highest precedence first."""


def patch(directory: Path, update: dict[str, Any], environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the written file: the existing one with the highest precedence, else a new `opencode.json`. Keeps comments, layout
    and `{env:}` references of unchanged values. Raises BadRequest, ConfigJsonError, ConfigInvalidError."""
    check(update)
    path = own_file(directory)
    _merge_into(path, update, environ)
    return path


def patch_global(update: dict[str, Any], environ: Mapping[str, str] = os.environ) -> Path:
    """The same with the user's own file."""
    check(update)
    path = global_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    _merge_into(path, update, environ)
    return path


def _merge_into(path: Path, update: dict[str, Any], environ: Mapping[str, str]) -> None:
    watch = ConfigWatch()
    values = Substitution(environ, watch.read)
    text = watch.read(path) or ""
    present = parse_layer(text, str(path), path.parent, values)
    changed = jsonc.merge(text, difference(without_masked(update), present))
    try:
        parse_layer(changed, str(path), path.parent, values)
    except ConfigInvalidError as error:
        raise BadRequest(f"the change does not fit what the file says: {error.message}") from error
    if changed != text:
        _replace(path, changed)


def check(update: Any) -> None:
    """`update` must be a configuration by itself; the first thing wrong is named."""
    try:
        Config.model_validate(update)
    except ValidationError as error:
        issues = describe(error, update, Config)
        refused = BadRequest(issues[0]["message"], issues[0]["path"], received=update)
        refused.issues = issues
        raise refused from error


def own_file(directory: Path) -> Path:
    return _first_file(directory, _OWN_FILES)


def global_file() -> Path:
    return _first_file(paths.opencode_config_dir(), _GLOBAL_FILES)


def _first_file(directory: Path, names: Sequence[str]) -> Path:
    places = [directory / name for name in names]
    return next((place for place in places if place.is_file()), directory / "opencode.json").resolve()


def _replace(path: Path, text: str) -> None:
    """Replaces the file atomically and keeps its mode."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigInvalidError(str(path), f"cannot be written: {error.strerror}") from error
