"""One layer: text → substituted text → JSON → a validated model. And layers merged: objects recursively, arrays replaced, except
`plugin` and `instructions`, which are concatenated. Reads no files: the caller does for `{file:}`."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from app.project.config import jsonc
from app.project.config.errors import ConfigInvalidError, ConfigJsonError, describe
from app.schema.config import Config
from app.util import environment
from app.util.bounds import DEEPEST, is_deeper
from app.util.environment import is_servers_own
from app.util.project_files import MAX_ALL_BYTES

MAX_VALUES = 10_000
"""The most values in a file: validating more of them stops the event loop, and in YAML a few lines can stand for billions."""
MAX_ALL_VALUES = 100_000
"""In all layers together; and the most rules of all agents, each of which has those of the configuration."""
_ADD_UP = ("plugin", "instructions")


def deep_merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A new object. A key that both have keeps its position in `base`, which orders permission rules."""
    merged = dict(base)
    for key, value in over.items():
        present = merged.get(key)
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            value = deep_merge(present, value)
        merged[key] = value
    return merged


def difference(update: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """The values in `update` that differ from `present`."""
    changes: dict[str, Any] = {}
    for key, value in update.items():
        before = present.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            value = difference(value, before)
            if not value:
                continue
        if key not in present or value != before:
            changes[key] = value
    return changes


def merge_layer(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    merged = deep_merge(_without_retyped_mcp(base, layer), layer)
    for key in _ADD_UP:
        if key in base and key in layer:
            merged[key] = list(dict.fromkeys([*base[key], *layer[key]]))
    return merged


def _without_retyped_mcp(base: Mapping[str, Any], layer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Drops the old entry of an MCP server that changes its type: the fields of one type are errors in the other."""
    after = layer.get("mcp", {})

    def stays(name: str, entry: Mapping[str, Any]) -> bool:
        types = {entry.get("type"), after.get(name, {}).get("type")} - {None}
        return len(types) < 2

    if not after or "mcp" not in base:
        return base
    return {**base, "mcp": {name: entry for name, entry in base["mcp"].items() if stays(name, entry)}}


def servers_apart(of_operator: Mapping[str, Any], of_project: Mapping[str, Any]) -> dict[str, Any]:
    """The MCP servers of the operator's layers and of the project's. No server mixes fields of both, or the operator's headers
    and variables would go to an address or program of the project's. But each may switch the other's servers on and off."""

    def of(name: str) -> dict[str, Any]:
        operator, project = of_operator.get(name, {}), of_project.get(name, {})
        if "type" not in project:
            return deep_merge(operator, project)
        return deep_merge(project, {} if "type" in operator else operator)

    return {name: of(name) for name in {**of_operator, **of_project}}


def programs_apart(of_operator: Any, of_project: Any) -> Any:
    """As `servers_apart`, for language servers and formatters. Either side may switch all of them off."""
    if not isinstance(of_operator, Mapping) or not isinstance(of_project, Mapping):
        return False if False in (of_operator, of_project) else of_operator or of_project

    def of(name: str) -> Mapping[str, Any]:
        operator, project = of_operator.get(name, {}), of_project.get(name, {})
        if "command" in project or not operator:
            return dict(project)
        return {**operator, **{key: value for key, value in project.items() if key == "disabled"}}

    return {name: of(name) for name in {**of_operator, **of_project}}


M = TypeVar("M", bound=BaseModel)

_TOKEN = re.compile(rf"{jsonc.STRING}|{jsonc.COMMENT}|\{{(?:env|file):[^{{}}\n]*\}}", re.S)
_ENV = re.compile(r"\{env:([^{}]*)\}")
_FILE = re.compile(r"\{file:([^{}\0]*)\}")


@dataclass(frozen=True)
class Substitution:
    """The sources of `{env:NAME}` and `{file:path}`. `read` returns None for a missing file."""

    environ: Mapping[str, str]
    read: Callable[[Path], str | None]

    def variable(self, name: str) -> str:
        return "" if is_servers_own(name) else self.environ.get(name, "")


def parse_layer(text: str, path: str, base: Path | None, values: Substitution) -> dict[str, Any]:
    """`path`: named in errors. `base`: the directory that relative `{file:}` paths start from."""
    return parse_literal(substitute(text, path, base, values), path)


def parse_literal(text: str, path: str) -> dict[str, Any]:
    """As `parse_layer`, without substitution."""
    finder = cache(jsonc.line_finder)
    return validate(Config, _json(text, path), path, lambda where: finder(text)(where)).layer()


def validate(
    model: type[M], data: Any, path: str, line_of: Callable[[Sequence[str | int]], int | None] = lambda where: None
) -> M:
    if not isinstance(data, dict):
        raise ConfigInvalidError(path, f"an object is needed here, this is {_kind(data)}", line=1)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        issues = describe(error, data, model)
        for issue in issues:
            if (line := line_of([*issue["path"], *issue.get("keys", [])])) is not None:
                issue["line"] = line
        message = "; ".join(_sentence(issue) for issue in issues)
        raise ConfigInvalidError(path, message, issues, issues[0].get("line")) from error


def _sentence(issue: dict[str, Any]) -> str:
    field = ".".join(map(str, issue["path"]))
    return f"{field}: {issue['message']}" if field else str(issue["message"])


def _json(text: str, path: str) -> Any:
    try:
        found = jsonc.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigJsonError(path, f"{error.msg} (column {error.colno})", error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise ConfigJsonError(path, str(error)) from error
    if is_deeper(found, DEEPEST):
        raise ConfigJsonError(path, f"it is nested more than {DEEPEST} deep")
    if has_too_many_values(found):
        raise ConfigJsonError(path, f"it has more than {MAX_VALUES} values")
    return found


def has_too_many_values(data: Any, most: int = MAX_VALUES) -> bool:
    """Counts a repeated value each time."""
    values = [data]
    for _ in range(most):
        if not values:
            return False
        value = values.pop()
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list | tuple):  # of YAML's ordered maps
            values += value
    return True


def _kind(data: Any) -> str:
    return {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(type(data), "a number")


def substitute(text: str, path: str, base: Path | None, values: Substitution) -> str:
    if "{env:" not in text and "{file:" not in text:
        return text
    left = MAX_ALL_BYTES

    def counted(value: str) -> str:
        nonlocal left
        left -= len(value)
        if left < 0:
            raise ConfigInvalidError(path, f"what its variables and files stand for is longer than {MAX_ALL_BYTES // 2**20} MiB")
        return value

    def token(match: re.Match[str]) -> str:
        found = match.group()
        if found.startswith("/") or "{" not in found:
            return found
        in_string = found.startswith('"')
        found = _ENV.sub(lambda name: _env_text(counted(values.variable(name[1])), in_string), found)
        line = text.count("\n", 0, match.start()) + 1 if "{file:" in found else 0
        return _FILE.sub(lambda name: counted(_file_text(name[1], path, line, base, values)), found)

    return _TOKEN.sub(token, text)


def _env_text(value: str, in_string: bool) -> str:
    """Unchanged, as in OpenCode, unless the value would end the enclosing string."""
    if not in_string:
        return value
    try:
        json.loads(f'"{value}"')
    except json.JSONDecodeError:
        return json.dumps(value, ensure_ascii=False)[1:-1]
    return value


def _file_text(name: str, path: str, line: int, base: Path | None, values: Substitution) -> str:
    file = environment.expand_path(name, base or Path())
    if base is None and not file.is_absolute():
        raise ConfigInvalidError(path, f'"{{file:{name}}}" must be absolute or start with ~/ here', line=line)
    content = values.read(file)
    if content is None:
        raise ConfigInvalidError(path, f'"{{file:{name}}}" names a file that does not exist: {file}', line=line)
    return json.dumps(content.strip(), ensure_ascii=False)[1:-1]
