"""The files of the user's own git configuration, and those that it names: git and commands are shown them, read-only.

Read without git, which would run in the sandbox that this is for. What is no ordinary file, or a large one, is left out.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from app.sandbox.git_repository import read_small

_MOST_FILES = 100
_SECTION = re.compile(r'\s*\[\s*([\w.-]+)[^\]"]*(?:"[^"]*"\s*)?\](.*)')
_SETTING = re.compile(r'\s*([a-z][a-z-]*)\s*=\s*(?:"([^"]*)"|([^#;]*))', re.IGNORECASE)
_NAMING_FILES = {"excludesfile", "attributesfile", "template", "allowedsignersfile", "ignorerevsfile", "file"}


def git_files(home: Path, environment: Mapping[str, str]) -> list[Path]:
    """By the names that git finds them by; those that are there."""
    found: list[Path] = []
    pending = _first_files(home, environment)
    while pending and len(found) < _MOST_FILES:
        file = pending.pop(0)
        if file in found or not file.is_file():
            continue
        found.append(file)
        for path, is_configuration in _named_in(file, home):
            (pending if is_configuration else found).append(path)
    return list(dict.fromkeys(path for path in found if path.is_file()))


def _first_files(home: Path, environment: Mapping[str, str]) -> list[Path]:
    own = environment.get("GIT_CONFIG_GLOBAL")
    folder = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "git"
    of_user = [Path(own)] if own else [home / ".gitconfig", folder / "config"]
    of_system = Path(environment.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig")
    return [path for path in (*of_user, folder / "ignore", folder / "attributes", of_system) if path.is_absolute()]


def _named_in(file: Path, home: Path) -> Iterator[tuple[Path, bool]]:
    """The absolute paths of files, and whether they are configuration, too."""
    section = ""
    for line in read_small(file).splitlines():
        if head := _SECTION.match(line):
            section, line = head[1].lower(), head[2]
        setting = _SETTING.match(line)
        name = (setting[2] or setting[3] or "").strip() if setting else ""
        if setting is None or not name or "\0" in name:
            continue
        path = home / name[2:] if name.startswith("~/") else Path(name)
        if section.startswith("include") and setting[1].lower() == "path":
            yield Path(os.path.normpath(file.parent / path)), True
        elif setting[1].lower() in _NAMING_FILES and path.is_absolute():
            yield path, False
