"""Decides what a restore does with each path, and does it: below a directory that is held open, without following symbolic
links out of it."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, assert_never

from app.project.snapshot.capture import NotCaptured, OnDisk, PathState, path_state
from app.project.snapshot.trees import Entry
from app.util.beneath import copy_owner, folder_of, remove_folder, replacing
from app.util.project_files import HeldDirectory


def write_file(root: HeldDirectory, path: str, content: bytes, *, executable: bool) -> None:
    """Atomically replaces a file, link or empty directory by a regular file. Raises OSError.

    Keeps the read and write permissions of an existing file; `executable` sets the executable bits.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with _replacing(root, path) as (name, folder, replaced):
        descriptor = os.open(name, flags, 0o777 if executable else 0o666, dir_fd=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if replaced is not None and stat.S_ISREG(replaced.st_mode):
                copy_owner(file.fileno(), replaced)
                os.fchmod(file.fileno(), _mode(stat.S_IMODE(replaced.st_mode), executable))


def write_link(root: HeldDirectory, path: str, target: bytes) -> None:
    """Atomically replaces a file, link or empty directory by a symbolic link. Raises OSError."""
    with _replacing(root, path) as (name, folder, _):
        os.symlink(target, os.fsencode(name), dir_fd=folder)


def remove(root: HeldDirectory, path: str, keep: Path) -> None:
    """Removes a file or link and then empty parent directories, as git does, but not `keep` and its parents."""
    with suppress(FileNotFoundError), folder_of(root.path / path, root) as folder:
        os.unlink(os.path.basename(path), dir_fd=folder)  # noqa: PTH119
    with suppress(OSError):  # not empty
        for emptied in Path(path).parents[:-1]:
            if keep.is_relative_to(root.real / emptied):
                return
            remove_folder(root.path / emptied, root)


@contextmanager
def _replacing(root: HeldDirectory, path: str) -> Iterator[tuple[str, int, os.stat_result | None]]:
    """Yields the name of a file to create in an open directory, and the status of what it replaces after the block."""
    name = os.path.basename(path)  # noqa: PTH119
    with folder_of(root.path / path, root, create=True) as folder:
        replaced, temporary = None, _temporary(name)
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        with suppress(FileNotFoundError):
            replaced = os.lstat(name, dir_fd=folder)
        if replaced is not None and stat.S_ISDIR(replaced.st_mode):
            os.rmdir(name, dir_fd=folder)
        with replacing(folder, name, temporary):
            yield temporary, folder, replaced


def _temporary(name: str) -> str:
    """The same name each time, so that a later server finds it."""
    return f".opensession-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"


def _mode(replaced: int, executable: bool) -> int:
    readers_may_execute = (replaced & 0o444) >> 2
    return replaced | readers_may_execute if executable else replaced & ~0o111


IGNORED = "it is ignored, so no snapshot holds it"
WAS_IGNORED = "it was ignored when the snapshot was taken"
OTHER_REPOSITORY = "it belongs to another git repository inside this one"
WAS_OTHERS = "it belonged to another git repository when the snapshot was taken"
OUTSIDE = "it lies outside the directory that snapshots cover"
UNREADABLE = "its snapshot is no longer kept or cannot be read"


@dataclass(frozen=True)
class NotRestored:
    path: Path
    reason: str


@dataclass
class RestoreReport:
    """The result for each path. `before` is a snapshot from before the restore; restoring the same paths from it undoes this one.

    `after`, for a dry run only, is the tree that the restore would produce.
    """

    before: str
    after: str | None = None
    restored: list[Path] = field(default_factory=list)
    deleted: list[Path] = field(default_factory=list)
    unchanged: list[Path] = field(default_factory=list)
    failures: list[NotRestored] = field(default_factory=list)


@dataclass(frozen=True)
class Refuse:
    reason: str


RestoreStep = Literal["skip", "delete"] | Entry | Refuse
"""An entry is written."""


@dataclass(frozen=True)
class RestoreTarget:
    """A path's entry in the snapshot, and why its content is missing, if it is."""

    entry: Entry | None
    not_captured: str | None = None


def decide_restore(target: RestoreTarget, current: Entry | None, on_disk: OnDisk) -> RestoreStep:
    """Overwrites and deletes only what the current snapshot contains, so that every restore can be undone."""
    if target.entry is not None and target.entry == current:
        return "skip"
    if target.not_captured:
        return Refuse(f"it was {target.not_captured} when the snapshot was taken")
    match on_disk:
        case NotCaptured():
            return Refuse(f"it is {on_disk.reason}")
        case "captured" if current is None:
            return Refuse(IGNORED)
        case "captured":
            return target.entry or "delete"
        case "absent" | "directory":
            return target.entry or "skip"
        case _:
            assert_never(on_disk)


class Restorer:
    """Executes the steps and adds the results to the report. Never removes the directory `keep`."""

    def __init__(self, worktree: HeldDirectory, keep: Path, report: RestoreReport, seen: Mapping[str, PathState | None]) -> None:
        """`seen`: the paths' states from before the present snapshot, which may lack what was changed since."""
        self._worktree = worktree
        self._keep = keep
        self._report = report
        self._seen = seen

    def sort(self, steps: Mapping[str, RestoreStep]) -> tuple[list[str], dict[str, Entry]]:
        """The paths to delete, and those to write. The others are in the report."""
        deletions: list[str] = []
        writes: dict[str, Entry] = {}
        for path, step in steps.items():
            match step:
                case "skip":
                    self._report.unchanged.append(self._worktree.real / path)
                case Refuse(reason):
                    self._report.failures.append(NotRestored(self._worktree.real / path, reason))
                case "delete":
                    deletions.append(path)
                case Entry():
                    writes[path] = step
                case _:
                    assert_never(step)
        return deletions, writes

    def keep_unchanged(self) -> None:
        """Removes what a server that was killed while it replaced one of the files may have left beside it."""
        for path in self._report.unchanged:
            place = self._worktree.path / path.relative_to(self._worktree.real)
            with suppress(OSError), folder_of(place, self._worktree) as folder:
                os.unlink(_temporary(place.name), dir_fd=folder)

    def delete(self, paths: list[str]) -> None:
        """Call it before `write`, so that a file can replace a directory that becomes empty."""
        for path in paths:
            with self._reported(path, self._report.deleted):
                self._require_unchanged(path)
                remove(self._worktree, path, self._keep)

    def write(self, entries: Mapping[str, Entry], contents: Mapping[str, bytes]) -> None:
        for path, entry in entries.items():
            if entry.blob not in contents:
                self._report.failures.append(NotRestored(self._worktree.real / path, UNREADABLE))
                continue
            with self._reported(path, self._report.restored):
                self._require_unchanged(path)
                if entry.is_link:
                    write_link(self._worktree, path, contents[entry.blob])
                else:
                    write_file(self._worktree, path, contents[entry.blob], executable=entry.is_executable)

    def _require_unchanged(self, path: str) -> None:
        """The restore itself changes directories, and the change time of a file with several names."""
        seen, found = self._seen[path], path_state(str(self._worktree.real / path))
        is_directory = seen is not None and stat.S_ISDIR(seen[3])
        if not is_directory and (seen and seen[1:]) != (found and found[1:]):
            raise OSError(errno.EBUSY, "it was changed meanwhile")

    @contextmanager
    def _reported(self, path: str, done: list[Path]) -> Iterator[None]:
        """Adds the path to `done`, or its failure to the report."""
        try:
            yield
        except OSError as error:
            self._report.failures.append(NotRestored(self._worktree.real / path, _reason(error)))
        else:
            done.append(self._worktree.real / path)


def _reason(error: OSError) -> str:
    match error:
        case NotADirectoryError() | OSError(errno=errno.ELOOP):
            return "a file or a link stands where its directory was"
        case OSError(strerror="Directory not empty"):
            return "a directory with other files stands in its place"
        case _:
            return (error.strerror or str(error)).lower()
