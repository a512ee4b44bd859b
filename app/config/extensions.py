"""Plugins and tools that a configuration names, each with whether the project itself named it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

SUFFIXES = {".py", ".js", ".ts"}


@dataclass(frozen=True)
class Extension:
    """`source` is a `file://` address, or the name of a package, module or entry point. `of_project`: it was named by a file that
    comes with the project, and so perhaps by a stranger."""

    source: str
    of_project: bool = False

    @property
    def path(self) -> Path | None:
        return Path(unquote(urlsplit(self.source).path)) if self.source.startswith("file://") else None

    @property
    def name(self) -> str:
        return extension_name(self.source)


def extension_name(source: str) -> str:
    """`file:///x/.opencode/plugin/a.ts` → `a`; `@scope/b@1.2` → `@scope/b`."""
    if source.startswith("file://"):
        return unquote(urlsplit(source).path).rsplit("/", 1)[-1].rsplit(".", 1)[0]
    at = source.rfind("@")
    return source[:at] if at > 0 else source


def distinct(extensions: Iterable[Extension]) -> list[Extension]:
    """One per name, regardless of version or file; the last one wins and keeps its position."""
    by_name: dict[str, Extension] = {}
    for extension in extensions:
        by_name.pop(extension.name, None)
        by_name[extension.name] = extension
    return list(by_name.values())
