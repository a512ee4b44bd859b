"""Decide what a restore does with each path, and do it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import assert_never

from app.snapshot import files
from app.snapshot.capture import Absent, Directory, Held, NotHeld, OnDisk
from app.snapshot.repository import Entry

IGNORED = "git ignores it, so no snapshot holds it"
OTHER_REPOSITORY = "it belongs to another git repository inside this one"
OUTSIDE = "it lies outside the directory that snapshots cover"
UNREADABLE = "its snapshot is no longer kept or cannot be read"


@dataclass(frozen=True)
class NotRestored:
    path: Path
    reason: str


@dataclass
class RestoreReport:
    """What became of each path. `before` is the snapshot taken first: restoring the same paths from it undoes this restore.

    `after`, of a dry run only, is the snapshot that would be taken next.
    """

    before: str
    after: str | None = None
    restored: list[Path] = field(default_factory=list)
    deleted: list[Path] = field(default_factory=list)
    unchanged: list[Path] = field(default_factory=list)
    could_not: list[NotRestored] = field(default_factory=list)


@dataclass(frozen=True)
class Leave:
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


Step = Leave | Delete | Write | Refuse


@dataclass(frozen=True)
class RestoreTarget:
    """A path as the snapshot has it, and why the snapshot lacks its content, if it does."""

    entry: Entry | None
    not_held: str | None = None


def decide_restore(target: RestoreTarget, current: Entry | None, on_disk: OnDisk) -> Step:
    """Nothing is overwritten or deleted that the current snapshot does not hold, so that every restore can be undone."""
    if target.entry is not None and target.entry == current:
        return Leave()
    if target.not_held:
        return Refuse(f"it was {target.not_held} when the snapshot was taken")
    match on_disk:
        case NotHeld():
            return Refuse(f"it is {on_disk.reason}")
        case Held() if current is None:
            return Refuse(IGNORED)
        case Held():
            return Write(target.entry) if target.entry else Delete()
        case Absent() | Directory():
            return Write(target.entry) if target.entry else Leave()
        case _:
            assert_never(on_disk)


class Restorer:
    """Carries out steps and writes them into the report. `keep` is a directory never to be removed."""

    def __init__(self, worktree: Path, keep: Path, report: RestoreReport) -> None:
        self._worktree = worktree
        self._keep = keep
        self._report = report

    def delete(self, paths: list[str]) -> None:
        """To be called before `write`, so that a file can take the place of a directory that this empties."""
        for path in paths:
            self._attempt(path, self._report.deleted, partial(files.remove, self._worktree, path, self._keep))

    def write(self, entries: Mapping[str, Entry], contents: Mapping[str, bytes]) -> None:
        for path, entry in entries.items():
            if entry.blob not in contents:
                self._report.could_not.append(NotRestored(self._worktree / path, UNREADABLE))
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
            self._report.could_not.append(NotRestored(self._worktree / path, _reason(error)))
        else:
            done.append(self._worktree / path)


def _reason(error: OSError) -> str:
    match error:
        case NotADirectoryError():
            return "a file or a link stands where its directory was"
        case OSError(strerror="Directory not empty"):
            return "a directory with other files stands in its place"
        case _:
            return (error.strerror or str(error)).lower()
