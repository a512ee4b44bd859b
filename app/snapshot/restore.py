"""Decides what a restore does with each path, and does it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import assert_never

from app.snapshot import files
from app.snapshot.capture import Absent, Captured, DirectoryOnDisk, NotCaptured, OnDisk
from app.snapshot.repository import Entry
from app.util.project_files import HeldDirectory

IGNORED = "it is ignored, so no snapshot holds it"
OTHER_REPOSITORY = "it belongs to another git repository inside this one"
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
class Skip:
    pass


@dataclass(frozen=True)
class Delete:
    pass


@dataclass(frozen=True)
class Write:
    entry: Entry


@dataclass(frozen=True)
class Refuse:
    reason: str


RestoreStep = Skip | Delete | Write | Refuse


@dataclass(frozen=True)
class RestoreTarget:
    """A path's entry in the snapshot, and why its content is missing, if it is."""

    entry: Entry | None
    not_captured: str | None = None


def decide_restore(target: RestoreTarget, current: Entry | None, on_disk: OnDisk) -> RestoreStep:
    """Overwrites and deletes only what the current snapshot contains, so that every restore can be undone."""
    if target.entry is not None and target.entry == current:
        return Skip()
    if target.not_captured:
        return Refuse(f"it was {target.not_captured} when the snapshot was taken")
    match on_disk:
        case NotCaptured():
            return Refuse(f"it is {on_disk.reason}")
        case Captured() if current is None:
            return Refuse(IGNORED)
        case Captured():
            return Write(target.entry) if target.entry else Delete()
        case Absent() | DirectoryOnDisk():
            return Write(target.entry) if target.entry else Skip()
        case _:
            assert_never(on_disk)


class Restorer:
    """Executes the steps and adds the results to the report. Never removes the directory `keep`."""

    def __init__(self, worktree: HeldDirectory, keep: Path, report: RestoreReport) -> None:
        self._worktree = worktree
        self._keep = keep
        self._report = report

    def keep_unchanged(self, paths: list[Path]) -> None:
        for path in paths:
            files.remove_leftover(self._worktree, path.relative_to(self._worktree.real).as_posix())

    def delete(self, paths: list[str]) -> None:
        """Call it before `write`, so that a file can replace a directory that becomes empty."""
        for path in paths:
            self._attempt(path, self._report.deleted, partial(files.remove, self._worktree, path, self._keep))

    def write(self, entries: Mapping[str, Entry], contents: Mapping[str, bytes]) -> None:
        for path, entry in entries.items():
            if entry.blob not in contents:
                self._report.failures.append(NotRestored(self._worktree.real / path, UNREADABLE))
                continue
            self._attempt(path, self._report.restored, partial(self._put, path, entry, contents[entry.blob]))

    def _put(self, path: str, entry: Entry, content: bytes) -> None:
        if entry.is_link:
            files.write_link(self._worktree, path, content)
        else:
            files.write_file(self._worktree, path, content, executable=entry.is_executable)

    def _attempt(self, path: str, done: list[Path], act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            self._report.failures.append(NotRestored(self._worktree.real / path, _reason(error)))
        else:
            done.append(self._worktree.real / path)


def _reason(error: OSError) -> str:
    match error:
        case NotADirectoryError():
            return "a file or a link stands where its directory was"
        case OSError(strerror="Directory not empty"):
            return "a directory with other files stands in its place"
        case _:
            return (error.strerror or str(error)).lower()
