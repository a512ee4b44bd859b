"""The one reader of a project's files: ordinary files up to a size, folders up to a number of entries.

A clone, a command in the sandbox or a member may have put anything where a file is expected: a FIFO that nobody writes to, a
device without an end, a link to another's file. So a name is looked up without opening its target; the target is judged, and that
very file is opened, whatever the name leads to by then. Nothing here waits for anybody.
"""

import errno
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch, fnmatchcase
from functools import lru_cache
from logging import Logger
from pathlib import Path

MAX_BYTES = 2**20
MAX_ALL_BYTES = 16 * MAX_BYTES
"""Of all files that one reader reads."""
MAX_ENTRIES = 10_000
"""In all folders that one reader lists."""
MAX_DEPTH = 50
MAX_PATH = 4096
"""Of a path that Linux takes. A longer one, as in a body or a tool call, takes time by the square of its length to resolve."""
MAX_NOTED = 100

Within = Callable[[str], bool]
"""Whether a resolved path may be read."""

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LOOK_UP = getattr(os, "O_PATH", _READ) | os.O_CLOEXEC
"""On Linux this opens nothing: even opening a device can have an effect."""
_PIECE = 2**16
_MISSING = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_LAYERS = ("opencode.json", "opencode.jsonc", ".opencode", ".claude/skills")
"""The only configuration that counts in the directories above a project."""


class FileRefused(OSError):
    """The file exists and is not read: `reason` says why."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = str(path)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class FolderEntry:
    name: str
    is_directory: bool


@dataclass(frozen=True)
class ProjectBounds:
    """Where the files of a project may lie; all paths are resolved. `directory`: as it was when it was opened. `checkout`: `/`
    outside git. `closed`: directories of which nothing is read, such as other users' roots, if the project is not in them.
    `trusted`: the project may name files anywhere, as the user may."""

    directory: str
    checkout: str
    closed: Callable[[], Iterable[str]] = tuple
    trusted: bool = True

    @classmethod
    def of(cls, directory: Path | str, checkout: Path | str) -> "ProjectBounds":
        """The bounds by where both are now."""
        return cls(os.path.realpath(directory), os.path.realpath(checkout))

    def hold(self, real: str) -> bool:
        tops = [self.directory] if self.checkout == "/" else [self.directory, self.checkout]
        return any(is_below(real, top) for top in tops) and not self.is_closed(real)

    def hold_configuration(self, real: str) -> bool:
        """Like `hold`, also for configuration in the directories above, where nothing may lead elsewhere."""
        above = (f"{str(place).rstrip('/')}/{name}" for place in Path(self.directory).parents for name in _LAYERS)
        return self.hold(real) or (any(is_below(real, place) for place in above) and not self.is_closed(real))

    def may_name(self, real: str) -> bool:
        return self.trusted or self.hold(real)

    def is_closed(self, real: str) -> bool:
        return any(is_below(real, place) and not is_below(self.directory, place) for place in self.closed())


@dataclass(eq=False)
class BoundedReader:
    """Reads files and folders of one kind, and notes which were refused. `entries_left` and `bytes_left`: how much it still lists
    and reads."""

    within: Within
    refused: list[FileRefused] = field(default_factory=list)
    entries_left: int = MAX_ENTRIES
    bytes_left: int = MAX_ALL_BYTES

    def text(self, path: str | Path) -> str | None:
        """None for a file that is missing or refused. Raises OSError, UnicodeDecodeError."""
        try:
            data = read_bytes(path, self.within, min(MAX_BYTES, self.bytes_left))
        except FileRefused as refused:
            self.note(refused)
            return None
        if data is None:
            return None
        self.bytes_left -= len(data)
        return data.decode("utf-8-sig")

    def entries(self, folder: str | Path) -> Sequence[FolderEntry]:
        """Sorted, without names that no JSON can hold; none for a folder that is missing or refused. Raises OSError."""
        try:
            found = list_folder(folder, self.within, self.entries_left)
        except FileRefused as refused:
            self.note(refused)
            return ()
        self.entries_left -= len(found)
        return [entry for entry in found if self._is_utf8(folder, entry.name)]

    def _is_utf8(self, folder: str | Path, name: str) -> bool:
        shown = os.fsencode(name).decode("utf-8", "replace")
        if shown != name:
            self.note(FileRefused(Path(folder, shown), "has a name that is not UTF-8"))
        return shown == name

    def note(self, refused: FileRefused) -> None:
        if len(self.refused) < MAX_NOTED:
            self.refused.append(refused)


def anywhere(real: str) -> bool:
    """For files of the user or the operator: dotfiles are often links."""
    return True


def read_bytes(path: str | Path, within: Within, limit: int = MAX_BYTES) -> bytes | None:
    """None if there is no file. Raises FileRefused, and OSError for a file that cannot be read."""
    try:
        with _opened(path, within, stat.S_ISREG, _READ) as descriptor:
            return _read_all(descriptor, path, limit)
    except OSError as error:
        if error.errno in _MISSING:
            return None
        raise


def read_small(path: str | Path, top: Path | str = "/") -> str:
    """Empty for anything but a regular file of at most MAX_BYTES that lies below `top`, which is resolved."""
    try:
        return (read_bytes(path, lambda real: is_below(real, str(top))) or b"").decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return ""


@contextmanager
def open_folder(path: str | Path, within: Within) -> Iterator[int]:
    """A descriptor while the block runs. Raises FileRefused, OSError."""
    with _opened(path, within, stat.S_ISDIR, _READ | os.O_DIRECTORY) as descriptor:
        yield descriptor


def list_folder(folder: str | Path, within: Within, most: int = MAX_ENTRIES) -> list[FolderEntry]:
    """Sorted by name; empty without a folder. A link to a directory counts as one: its target is judged when it is listed itself.
    Raises FileRefused, OSError."""
    try:
        with open_folder(folder, within) as descriptor, os.scandir(descriptor) as found:
            return sorted(_at_most(most, found, folder), key=lambda entry: entry.name)
    except OSError as error:
        if error.errno in _MISSING:
            return []
        raise


def path_of(descriptor: int) -> str:
    """Where an open file is, whatever its name leads to by now."""
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, b"\0" * 1024).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115


def resolved(path: str | Path) -> str:
    """As `os.path.realpath`. Empty, which is below no directory, if the path is too long, or if a link on the way cannot be read,
    as some of `/proc` or one that leads to another, a thousand times."""
    try:
        return os.path.realpath(path) if len(str(path)) <= MAX_PATH else ""
    except (OSError, RecursionError):
        return ""


def is_below(path: str, top: str) -> bool:
    """Whether `path` is `top` or below; both are resolved."""
    return path == top or path.startswith(top.rstrip("/") + "/")


@lru_cache(maxsize=1000)
def warn_once(log: Logger, message: str) -> None:
    """For reads before each step, which are not worth a line each time."""
    log.warning("%s", message)


@contextmanager
def _opened(path: str | Path, within: Within, is_wanted: Callable[[int], bool], flags: int) -> Iterator[int]:
    found = os.open(path, _LOOK_UP)
    try:
        if not is_wanted(os.fstat(found).st_mode):
            raise FileRefused(path, "is no folder" if flags & os.O_DIRECTORY else "is no ordinary file")
        if not within(path_of(found)):
            raise FileRefused(path, "leads out of the project")
        descriptor = os.open(f"/proc/self/fd/{found}", flags) if hasattr(os, "O_PATH") else os.dup(found)
    finally:
        os.close(found)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, path: str | Path, limit: int) -> bytes:
    """The file may grow meanwhile, and a file in /proc has no size at all."""
    data = bytearray()
    if os.fstat(descriptor).st_size <= limit:
        while len(data) <= limit and (piece := os.read(descriptor, min(_PIECE, limit + 1 - len(data)))):
            data += piece
        if len(data) <= limit:
            return bytes(data)
    raise FileRefused(path, f"is larger than {limit // 1024} KiB")


def _at_most(most: int, entries: Iterable[os.DirEntry[str]], folder: str | Path) -> Iterator[FolderEntry]:
    for number, entry in enumerate(entries):
        if number == most:
            raise FileRefused(folder, f"holds more files than are looked at, which are {MAX_ENTRIES} altogether")
        yield FolderEntry(entry.name, is_directory(entry))


def is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or into a folder that cannot be entered
        return False


# A directory that is held open: its path may lead elsewhere later, as when a command puts a link in its place.

Identity = tuple[int, int]
"""Device and inode. They identify the directory as long as it is held open."""

_FLAGS = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


class DirectoryReplaced(OSError):
    """Something else stands where a directory in use was."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.ESTALE, "another directory stands there than when the work began", str(path))


class HeldDirectory:
    """`path`: as it was named. `real`: where it was when it was opened, resolved."""

    __slots__ = ("__weakref__", "_descriptor", "identity", "path", "real")

    def __init__(self, path: Path) -> None:
        """Raises OSError if it is no directory."""
        self._descriptor = -1
        self._descriptor = os.open(path, _FLAGS)
        self.path = path
        self.real = Path(path_of(self._descriptor))
        self.identity = identity_of(self._descriptor)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeldDirectory) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Path, Path, Identity]:
        return self.path, self.real, self.identity

    def __repr__(self) -> str:
        return f"HeldDirectory({str(self.path)!r})"

    def is_in_place(self) -> bool:
        """Whether both its names still lead to the directory."""
        try:
            return identity_of(self.path) == identity_of(self.real) == self.identity
        except OSError:
            return False

    def opened(self) -> int:
        """A descriptor for the caller, who closes it. Raises DirectoryReplaced."""
        if not self.is_in_place():
            raise DirectoryReplaced(self.path)
        return os.dup(self._descriptor)


def identity_of(file: int | Path) -> Identity:
    """Follows links. Raises OSError."""
    found = os.stat(file)  # noqa: PTH116  a descriptor, too
    return found.st_dev, found.st_ino


def located(path: Path) -> tuple[Path, Identity]:
    """The resolved path of a file or directory, and its identity at the same moment. Raises OSError."""
    descriptor = os.open(path, os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK))
    try:
        return Path(path_of(descriptor)), identity_of(descriptor)
    finally:
        os.close(descriptor)


# Patterns of files, as `glob` has them, found by the bounded reader.

_MAGIC = frozenset("*?[")


def matching_paths(reader: BoundedReader, folder: str, pattern: str) -> list[str]:
    """The paths below `folder` that match, hidden ones too, sorted; `**` stands for any number of folders. Callers check
    whether a path is a file, and may be read. A pattern of more than MAX_DEPTH parts is refused."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if len(parts) > MAX_DEPTH:
        reader.note(FileRefused(f"{pattern[:100]}…", f"has more than {MAX_DEPTH} parts"))
        return []
    return sorted(set(_matches(reader, folder.rstrip("/"), parts, 0)))


def _matches(reader: BoundedReader, folder: str, parts: Sequence[str], depth: int) -> Iterator[str]:
    if not parts:
        yield folder
    elif parts[0] == "**":
        yield from _any_depth(reader, folder, parts, depth)
    elif _MAGIC.isdisjoint(parts[0]):
        yield from _matches(reader, f"{folder}/{parts[0]}", parts[1:], depth)
    else:
        for entry in reader.entries(folder or "/"):
            if fnmatchcase(entry.name, parts[0]) and (entry.is_directory or len(parts) == 1):
                yield from _matches(reader, f"{folder}/{entry.name}", parts[1:], depth)


def _any_depth(reader: BoundedReader, folder: str, parts: Sequence[str], depth: int) -> Iterator[str]:
    if len(parts) > 1:
        yield from _matches(reader, folder, parts[1:], depth)
    for entry in reader.entries(folder or "/"):
        if entry.is_directory and depth < MAX_DEPTH:
            yield from _matches(reader, f"{folder}/{entry.name}", parts, depth + 1)
        elif len(parts) == 1:
            yield f"{folder}/{entry.name}"


# Programs for work on a project: its own, or those of `PATH`, and the files that say which it uses.

_OWN = ("node_modules/.bin", ".venv/bin", "venv/bin")


def above(path: Path, top: Path) -> Iterator[Path]:
    """The directories of `path`, from its own up to `top`."""
    for place in path.parents:
        yield place
        if place == top:
            return


def find_program(name: str, directory: Path, top: Path, search_path: str | None, *, is_configured: bool = False) -> str | None:
    """The program's absolute path: the project's before that of `search_path`. A name with a `/` starts at `directory`. A
    configured one is not looked for in the project, which did not write the variables configured with it."""
    if "/" in name:
        program = directory / name
        return str(program) if os.access(program, os.X_OK) else None
    own = os.pathsep.join(str(place / folder) for place in above(directory / name, top) for folder in _OWN)
    return (not is_configured and shutil.which(name, path=own)) or shutil.which(name, path=search_path)


def has_marker(folder: Path, markers: Iterable[str], top: Path) -> bool:
    """Whether the folder has one of the files: `name`, in which `*` stands for any letters, or `name:text`, a file with this
    text."""
    parts = (marker.partition(":") for marker in markers)
    return any(text in read_small(folder / name, top) if text else _has_file(folder, name, top) for name, _, text in parts)


def _has_file(folder: Path, pattern: str, top: Path) -> bool:
    if "*" not in pattern:
        return os.path.exists(folder / pattern)  # noqa: PTH110  False for what cannot be asked for; a Path raises
    try:
        return any(fnmatch(entry.name, pattern) for entry in list_folder(folder, lambda real: is_below(real, str(top))))
    except OSError:
        return False
