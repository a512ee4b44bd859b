"""Reading from the disk, and remembering what was read, so that asking whether it changed costs one stat each."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from app.config.errors import ConfigInvalidError

Stamp = tuple[int, int, int] | None
_SKIPPED_FOLDERS = {"node_modules", ".git"}


class ConfigWatch:
    """`stamps`: path → (mtime in ns, size, inode), None for what was looked for and is not there."""

    def __init__(self) -> None:
        self.stamps: dict[str, Stamp] = {}

    def read(self, path: Path) -> str | None:
        """The text of a file, None if there is none."""
        if not self.exists(path):
            return None
        try:
            return path.read_text(encoding="utf-8-sig")
        except IsADirectoryError:
            return None
        except OSError as error:
            raise ConfigInvalidError(str(path), f"cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigInvalidError(str(path), f"is not UTF-8 text (byte {error.start})") from error

    def exists(self, path: Path) -> bool:
        # Stamped before it is read: a change in between then shows as stale, and is not missed.
        stamp = self.stamps[str(path)] = _stamp(str(path))
        return stamp is not None

    def folders(self, folder: Path) -> set[str]:
        """The names of the folders in `folder`; none if it is not there."""
        return {entry.name for entry in self._entries(str(folder)) if entry.is_dir()}

    def files(self, folder: Path, *, deep: bool = True) -> Iterator[Path]:
        """The files below `folder`, sorted, links followed; hidden ones too."""
        yield from self._files(str(folder), deep, ())

    def _files(self, folder: str, deep: bool, above: tuple[str, ...]) -> Iterator[Path]:
        real = os.path.realpath(folder)
        if real in above:
            return
        for entry in self._entries(folder):
            if not entry.is_dir():
                yield Path(entry.path)
            elif deep and entry.name not in _SKIPPED_FOLDERS:
                yield from self._files(entry.path, deep, (*above, real))

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        if not self.exists(Path(folder)):
            return []
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise ConfigInvalidError(folder, f"cannot be read: {error.strerror}") from error


def essential(stamps: Mapping[str, Stamp]) -> dict[str, Stamp]:
    """Without what was looked for in a folder that is not there either: it cannot come before the folder does."""
    absent = {path for path, stamp in stamps.items() if stamp is None}
    return {path: stamp for path, stamp in stamps.items() if stamp is not None or str(Path(path).parent) not in absent}


def changed(stamps: Mapping[str, Stamp]) -> bool:
    return any(_differs(path, stamp) for path, stamp in stamps.items())


def _differs(path: str, stamp: Stamp) -> bool:
    # Most of what is looked for is not there, and access() says so without the cost of an exception.
    return os.access(path, os.F_OK) if stamp is None else _stamp(path) != stamp


def _stamp(path: str) -> Stamp:
    """None too for what cannot be reached: a closed directory above it, a link to itself."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path costs as much as the call, and this runs before every request
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
