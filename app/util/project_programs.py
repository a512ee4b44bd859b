"""Programs that a project is worked on with: its own, or those of `PATH`."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_OWN = ("node_modules/.bin", ".venv/bin", "venv/bin")


def above(path: Path, top: Path) -> Iterator[Path]:
    """The directories of `path`, from its own up to `top`."""
    for place in path.parents:
        yield place
        if place == top:
            return


def find_program(name: str, directory: Path, top: Path, search_path: str | None) -> str | None:
    """The program's absolute path: that of the project before that of `search_path`. A name with a `/` starts at `directory`."""
    if "/" in name:
        program = directory / name
        return str(program) if os.access(program, os.X_OK) else None
    own = os.pathsep.join(str(place / folder) for place in above(directory / name, top) for folder in _OWN)
    return shutil.which(name, path=own) or shutil.which(name, path=search_path)
