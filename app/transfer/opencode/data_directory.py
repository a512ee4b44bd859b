"""Finds OpenCode's data directory and what to read in it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from app.transfer.opencode.database import DatabaseStorage
from app.transfer.opencode.json_storage import JsonStorage
from app.transfer.opencode.project_storage import ProjectStorage
from app.transfer.opencode.records import SourceReader


class NoOpenCodeData(Exception):
    """The directory holds no sessions of OpenCode. The message says what was looked for."""


def default_directory(environment: Mapping[str, str] = os.environ) -> Path:
    base = environment.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "opencode"


@contextmanager
def readers_of(directory: Path) -> Iterator[list[SourceReader]]:
    """Readers of what the newest OpenCode that used the directory would show. What its migrations left behind is not read: it is
    out of date, and holds sessions that were deleted since. Raises NoOpenCodeData, NewerOpenCode and OSError."""
    with ExitStack() as stack:
        databases = sorted(directory.glob("opencode*.db"))
        if databases:
            scratch = Path(stack.enter_context(TemporaryDirectory(prefix="opensession-import-")))
            found = [stack.enter_context(closing(DatabaseStorage(path, directory / "storage", scratch))) for path in databases]
            for reader in found:
                reader.require_current()
            yield [*found]
        else:
            yield _json_readers(directory)


def _json_readers(directory: Path) -> list[SourceReader]:
    storage, projects = directory / "storage", directory / "project"
    readers: list[SourceReader] = []
    if (storage / "session").is_dir():
        readers.append(JsonStorage(storage))
    if _migrations(storage) < 1 and any(projects.glob("*/storage/session")):
        readers.append(ProjectStorage(projects))
    if not readers:
        raise NoOpenCodeData(
            f"{directory} holds no sessions of OpenCode: there is neither opencode.db, nor storage/session, nor "
            "project/*/storage/session. Name the directory that `opencode debug paths` shows as data."
        )
    return readers


def _migrations(storage: Path) -> int:
    """How many of its migrations OpenCode has run; the first one copies `project/`."""
    try:
        return int((storage / "migration").read_text())
    except (OSError, ValueError):
        return 0
