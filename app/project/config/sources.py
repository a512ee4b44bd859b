"""Where configuration is read from: its directories (global, `.opencode` upward with the nearest first, `~/.opencode`,
OPENCODE_CONFIG_DIR), and a reader that remembers the state of each file, so that a check for changes costs one stat call a path.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.project.config.errors import ConfigInvalidError
from app.project.config.flags import Flags
from app.util import environment
from app.util.project_files import MAX_DEPTH, BoundedReader, FileRefused, FolderEntry, Within, anywhere

FOLDER = ".opencode"


@dataclass(frozen=True)
class ConfigDirectory:
    """A directory of agents, commands, plugins, skills and tools. `files`: its config files, lowest first. `of_project`: the
    directory is in or above the project, and is not the user's own."""

    path: Path
    files: tuple[Path, ...]
    of_project: bool


def ascend(directory: Path, worktree: Path) -> list[Path]:
    """`directory`, its parent and so on to `worktree`, or to the root if the directory is not below the worktree."""
    places = [directory, *directory.parents]
    return places[: places.index(worktree) + 1] if worktree in places else places


def config_directories(upward: Sequence[Path], flags: Flags) -> Iterator[ConfigDirectory]:
    """Lowest first. `upward`: the project's directory and those above it."""
    home, global_dir = environment.home(), environment.opencode_config_dir()
    own = Path(flags.config_dir).absolute() if flags.config_dir else None
    users = [global_dir, home / FOLDER, *([own] if own else [])]
    for place in dict.fromkeys([global_dir, *(place / FOLDER for place in upward), *users[1:]]):
        has_files = place.name == FOLDER or place == own
        files = (place / "opencode.jsonc", place / "opencode.json") if has_files else ()
        yield ConfigDirectory(place, files, of_project=place not in users)


ConfigStamp = tuple[int, int, int] | None
_SKIPPED_FOLDERS = {"node_modules", ".git"}


class ConfigWatch:
    """`stamps`: path → (mtime in ns, size, inode), None for a missing path; several watches may share them. `within`: where files
    must really lie to be read."""

    def __init__(self, within: Within = anywhere, stamps: dict[str, ConfigStamp] | None = None) -> None:
        self.stamps = {} if stamps is None else stamps
        self._reader = BoundedReader(within)

    @property
    def refused(self) -> Sequence[FileRefused]:
        return self._reader.refused

    def read(self, path: Path) -> str | None:
        """The text of a file; None if the file is missing or refused."""
        if not self.exists(path):
            return None
        try:
            return self._reader.text(path)
        except OSError as error:
            raise ConfigInvalidError(str(path), f"cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigInvalidError(str(path), f"is not UTF-8 text (byte {error.start})") from error

    def exists(self, path: Path) -> bool:
        # The stamp is taken before reading, so that a change in between is not missed.
        stamp = self.stamps[str(path)] = _stamp(str(path))
        return stamp is not None

    def folders(self, folder: Path) -> set[str]:
        """The names of the folders in `folder`; none if it is missing."""
        return {entry.name for entry in self._entries(str(folder)) if entry.is_directory}

    def files(self, folder: Path, *, deep: bool = True) -> Iterator[Path]:
        """The files below `folder`, sorted, hidden ones too. Links are followed as far as allowed."""
        yield from self._files(str(folder), deep, ())

    def _files(self, folder: str, deep: bool, above: tuple[str, ...]) -> Iterator[Path]:
        real = os.path.realpath(folder)
        if real in above or len(above) > MAX_DEPTH:
            return
        for entry in self._entries(folder):
            if not entry.is_directory:
                yield Path(folder, entry.name)
            elif deep and entry.name not in _SKIPPED_FOLDERS:
                yield from self._files(f"{folder}/{entry.name}", deep, (*above, real))

    def _entries(self, folder: str) -> Sequence[FolderEntry]:
        if not self.exists(Path(folder)):
            return ()
        try:
            return self._reader.entries(folder)
        except OSError as error:
            raise ConfigInvalidError(folder, f"cannot be read: {error.strerror}") from error


def essential(stamps: Mapping[str, ConfigStamp]) -> dict[str, ConfigStamp]:
    """Without missing paths in missing folders: they cannot appear before their folder."""
    absent = {path for path, stamp in stamps.items() if stamp is None}
    return {path: stamp for path, stamp in stamps.items() if stamp is not None or str(Path(path).parent) not in absent}


def changed(stamps: Mapping[str, ConfigStamp]) -> bool:
    """Whether a file or directory has been changed, created or deleted."""
    # Most paths are missing, and access() reports that without the cost of an exception.
    return any(os.access(path, os.F_OK) if stamp is None else _stamp(path) != stamp for path, stamp in stamps.items())


def _stamp(path: str) -> ConfigStamp:
    """None also for an unreachable path: no permission for a parent, or a link to itself."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path costs as much as the call, and this runs before every request
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
