"""Programs that a project is worked on with: its own, or those of `PATH`, and the files that say which it uses."""

import os
import shutil
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from app.util.project_files import is_below, list_folder, read_bytes

_OWN = ("node_modules/.bin", ".venv/bin", "venv/bin")


def above(path: Path, top: Path) -> Iterator[Path]:
    """The directories of `path`, from its own up to `top`."""
    for place in path.parents:
        yield place
        if place == top:
            return


def find_program(name: str, directory: Path, top: Path, search_path: str | None, *, is_configured: bool = False) -> str | None:
    """The program's absolute path: that of the project before that of `search_path`. A name with a `/` starts at `directory`. One
    that is configured is not looked for in the project, whose the variables are not that are configured with it."""
    if "/" in name:
        program = directory / name
        return str(program) if os.access(program, os.X_OK) else None
    own = os.pathsep.join(str(place / folder) for place in above(directory / name, top) for folder in _OWN)
    return (not is_configured and shutil.which(name, path=own)) or shutil.which(name, path=search_path)


def text_of(path: Path, top: Path) -> str:
    """Empty for what is no file of the project, and no short one."""
    try:
        return (read_bytes(path, lambda real: is_below(real, str(top))) or b"").decode(errors="replace")
    except OSError:
        return ""


def has_file(folder: Path, pattern: str, top: Path) -> bool:
    """Whether there is one whose name matches; `*` for any letters."""
    if "*" not in pattern:
        return (folder / pattern).exists()
    try:
        return any(fnmatch(entry.name, pattern) for entry in list_folder(folder, lambda real: is_below(real, str(top))))
    except OSError:
        return False
