"""Configuration errors, and what Pydantic found wrong in the form that clients of OpenCode know. Every request of the directory
gets status 500 until the file is corrected.

ServiceError
├── ConfigJsonError         the text is not JSON with comments
├── ConfigInvalidError      the JSON is not a configuration, or names something that is missing
└── ConfigFrontmatterError  a markdown file's frontmatter is not YAML: the file is skipped, and this is a warning
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from app.schema.errors import ServiceError


class _FileError(ServiceError):
    """`line`: of the file at `path`, from 1."""

    is_logged = True

    def __init__(self, path: str, message: str, line: int | None = None, **facts: Any) -> None:
        super().__init__(f"{path if line is None else f'{path}:{line}'}: {message}", path=path, line=line, **facts)


class ConfigJsonError(_FileError):
    name = "ConfigJsonError"


class ConfigFrontmatterError(_FileError):
    name = "ConfigFrontmatterError"


class ConfigInvalidError(_FileError):
    """`issues` are `{code, path, message, line?}`, in the file's order."""

    name = "ConfigInvalidError"

    def __init__(self, path: str, message: str, issues: Sequence[dict[str, Any]] | None = None, line: int | None = None) -> None:
        self.issues = list(issues or [])
        super().__init__(path, message, line, issues=self.issues or None)


Path = list[str | int]

MAX_ISSUES = 100


def describe(error: ValidationError, data: Any, model: type[BaseModel]) -> list[dict[str, Any]]:
    """One issue per position, for the first MAX_ISSUES errors. Of a union, only the branch that matched furthest is reported."""
    issues: dict[tuple[str | int, ...], dict[str, Any]] = {}
    for detail in error.errors(include_url=False)[:MAX_ISSUES]:
        issue = _issue(detail, data, model)
        place = (*issue["path"], *issue.get("keys", []))
        if place in issues:
            issues[place]["message"] += f", or: {issue['message']}"
        else:
            issues[place] = issue
    above = {place[:length] for place in issues for length in range(len(place))}
    return [issue for place, issue in issues.items() if place not in above]


def _issue(detail: ErrorDetails, data: Any, model: type[BaseModel]) -> dict[str, Any]:
    path = _path_in(data, detail["loc"], keep_last=detail["type"] == "missing")
    if detail["type"] == "extra_forbidden":
        *parent, key = path
        return {"code": "unrecognized_keys", "keys": [key], "path": parent, "message": _unknown_key(str(key), parent, model)}
    return {"code": detail["type"], "path": path, "message": detail["msg"].removeprefix("Value error, ")}


def _unknown_key(key: str, parent: Path, model: type[BaseModel]) -> str:
    known = [] if parent else [field.alias or name for name, field in model.model_fields.items()]
    close = get_close_matches(key, known, n=1)
    return f'Unrecognized key: "{key}"' + (f' (did you mean "{close[0]}"?)' if close else "")


def _path_in(data: Any, loc: Sequence[str | int], keep_last: bool) -> Path:
    """`loc` without the names of union branches, which Pydantic mixes in."""
    path: Path = []
    for index, key in enumerate(loc):
        if _has(data, key):
            data = data[key]
        elif not (keep_last and index == len(loc) - 1):
            continue
        path.append(key)
    return path


def _has(data: Any, key: str | int) -> bool:
    if isinstance(data, list):
        return isinstance(key, int) and key < len(data)
    return isinstance(data, dict) and key in data
