"""Configuration errors. Every request of the directory gets status 500 until the file is corrected.

ServiceError
├── ConfigJsonError         the text is not JSON with comments
├── ConfigInvalidError      the JSON is not a configuration, or names something that is missing
└── ConfigFrontmatterError  a markdown file's frontmatter is not YAML: the file is skipped, and this is a warning
"""

from collections.abc import Sequence
from typing import Any

from app.schema.errors import ServiceError


class ConfigJsonError(ServiceError):
    is_logged = True
    name = "ConfigJsonError"

    def __init__(self, path: str, message: str, line: int | None = None) -> None:
        super().__init__(f"{_place(path, line)}: {message}", path=path, line=line)


class ConfigInvalidError(ServiceError):
    """`issues` are `{code, path, message, line?}`, in the file's order."""

    is_logged = True
    name = "ConfigInvalidError"

    def __init__(self, path: str, message: str, issues: Sequence[dict[str, Any]] | None = None, line: int | None = None) -> None:
        self.issues = list(issues or [])
        super().__init__(f"{_place(path, line)}: {message}", path=path, line=line, issues=self.issues or None)


class ConfigFrontmatterError(ServiceError):
    is_logged = True
    name = "ConfigFrontmatterError"

    def __init__(self, path: str, message: str, line: int | None = None) -> None:
        super().__init__(f"{_place(path, line)}: {message}", path=path, line=line)


def _place(path: str, line: int | None) -> str:
    return path if line is None else f"{path}:{line}"
