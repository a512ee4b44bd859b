"""Snapshots of a checkout's files: taken before and after every step of a turn, compared for diffs, restored by revert.

What a snapshot holds: the files and links of the covered directory that the project's git would not ignore, with content and
executable bit. What it lacks: the content of large, special or unreadable files (that they change is seen), empty directories,
the files of repositories and submodules inside this one, and names that are not UTF-8.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, TypeVar, assert_never

from app.schema.session import FileDiff
from app.snapshot.capture import OnDisk, Staging, Worktree, placeholder_reason
from app.snapshot.errors import SnapshotFailed
from app.snapshot.later_run import LaterRun
from app.snapshot.lock import RepositoryLock
from app.snapshot.quota import SnapshotQuota
from app.snapshot.repository import Entry, Repository, Signature
from app.snapshot.restore import (
    IGNORED,
    OTHER_REPOSITORY,
    OUTSIDE,
    UNREADABLE,
    Delete,
    Leave,
    NotRestored,
    Refuse,
    Restorer,
    RestoreReport,
    RestoreTarget,
    Step,
    Write,
    decide_restore,
)

T = TypeVar("T")
_FILES_IN_MEMORY = 64


def snapshot_dir(data_dir: Path, project_id: str, worktree: Path) -> Path:
    """Each checkout of a project has its own, so that no two share an index."""
    name = hashlib.sha256(str(worktree).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return data_dir / "snapshot" / project_id / name


@dataclass(frozen=True)
class _Known:
    """The index as this object last left it: the tree written from it, and the placeholders in it."""

    signature: Signature | None
    tree: str
    placeholders: Mapping[str, bytes]


class Snapshots:
    """Snapshots of one directory. A snapshot is named by its tree's hash and kept for seven days after it was last current.

    Every method raises SnapshotFailed where git fails; `restore` has then touched nothing.
    """

    def __init__(
        self, git_dir: Path, worktree: Path, directory: Path, exclude: Sequence[Path] = (), *, most_bytes: int | None = None
    ) -> None:
        """`directory`, in `worktree`, is what snapshots cover; `exclude` holds directories that they leave out.
        `most_bytes`: what all snapshots may take."""
        self._quota = SnapshotQuota(most_bytes)
        git_dir = git_dir.absolute()
        self._worktree = worktree.resolve()
        self._directory = directory.resolve()
        excluded = [_relative(path.resolve(), self._worktree) for path in exclude]
        scope = _relative(self._directory, self._worktree) or ""
        self._repository = Repository(git_dir, self._worktree, scope, filter(None, excluded))
        self._lock = RepositoryLock(git_dir / "opensession.lock")
        self._known: _Known | None = None
        self._has_new_trees = True
        self._track = LaterRun(self._track_alone)
        self._unbreakable: set[asyncio.Task[Any]] = set()

    async def track(self) -> str:
        """Take a snapshot: the hash of a tree that holds the files as they are at a moment after this call began."""
        await self._quota.require_room(self._repository)
        return await self._track()

    async def patch(self, tree: str, until: str | None = None) -> list[Path]:
        """Absolute paths that changed between a snapshot and a later one, by default one taken now."""
        later = until or await self.track()
        return [self._worktree / path for path in await self._changed(tree, later)]

    async def diff(self, before: str, after: str | None = None) -> str:
        """A unified diff from one snapshot to another, by default to one taken now."""
        return await self._repository.diff_text(before, after or await self.track())

    async def diff_full(self, before: str, after: str) -> list[FileDiff]:
        """Each changed file with both its texts and the counts of lines; a rename is a deletion and an addition."""
        if before == after:
            return []
        changes = await self._repository.changes(before, after)
        contents = await self._repository.blobs(blob for change in changes for blob in change.blobs())
        return [change.as_file_diff(contents) for change in changes]

    async def restore(
        self, wanted: Mapping[Path, str], *, dry_run: bool = False, about_to: Callable[[str], Awaitable[None]] | None = None
    ) -> RestoreReport:
        """Bring each path to its content, executable bit and type in its snapshot, or delete it where that has none.

        No other file is touched; a directory that a deletion empties goes too, as in git. A dry run only reports. `about_to` is
        called with the snapshot of how things are before the first file is touched; raising, it stops the restore.
        """
        return await self._to_its_end(self._restore(wanted, dry_run, about_to))

    async def gc(self) -> None:
        """Delete old snapshots; nothing to do when none was taken since the last time, unless there is no room for one."""
        if not self._has_new_trees and not self._quota.is_full:
            return
        async with self._lock.held() as lock:
            await self._repository.prepare()
            await self._repository.refresh(lock)
        self._has_new_trees = False
        await self._repository.collect()
        async with self._lock.held():
            await self._quota.make_room(self._repository)

    # Taking one.

    async def _track_alone(self) -> str:
        async with self._lock.held() as lock:
            return await self._capture(lock)

    async def _capture(self, lock: int) -> str:
        """A file that vanishes while git reads it fails the first attempt, a damaged index the second."""
        with suppress(SnapshotFailed):
            return await self._capture_once(lock)
        with suppress(SnapshotFailed):
            return await self._capture_once(lock)
        self._repository.drop_index()
        return await self._capture_once(lock)

    async def _capture_once(self, lock: int) -> str:
        try:
            await self._repository.prepare()
            known = self._known if self._known and self._known.signature == self._repository.index_signature() else None
            staging = await self._stage(known, lock)
            tree = await self._write(staging, known, lock)
            self._repository.keep(tree)
        except OSError as error:
            raise SnapshotFailed(str(error)) from error
        return tree

    async def _stage(self, known: _Known | None, lock: int) -> Staging:
        listed = await self._repository.listed(lock)
        if known is None:
            listed += await self._repository.tracked_though_ignored()
        return await asyncio.to_thread(Worktree(self._worktree).stage, listed) if listed else Staging()

    async def _write(self, staging: Staging, known: _Known | None, lock: int) -> str:
        placed = known.placeholders if known else {}
        to_place = {path: target for path, target in staging.placeholders.items() if placed.get(path) != target}
        if staging.update:
            await self._repository.update(staging.update, lock)
        if to_place or staging.remove:
            await self._repository.put(to_place, staging.remove, lock)
        if known and not (staging.update or staging.remove or to_place):
            return known.tree
        tree = await self._repository.write_tree(lock)
        self._known = _Known(self._repository.index_signature(), tree, staging.placeholders)
        self._has_new_trees = True
        return tree

    async def _changed(self, before: str, after: str) -> list[str]:
        return [] if before == after else await self._repository.changed(before, after)

    # Restoring.

    async def _restore(
        self, wanted: Mapping[Path, str], dry_run: bool, about_to: Callable[[str], Awaitable[None]] | None
    ) -> RestoreReport:
        async with self._lock.held() as lock:
            report = RestoreReport(await self._capture(lock))
            steps = await self._plan(wanted, report)
            deletions, writes = self._sort(steps, report)
            if dry_run:
                report.deleted += [self._worktree / path for path in deletions]
                report.restored += [self._worktree / path for path in writes]
                changed = {**dict.fromkeys(deletions), **writes}
                report.after = await self._repository.tree_with(report.before, changed, lock) if changed else report.before
            else:
                if about_to is not None:
                    await about_to(report.before)
                await self._carry_out(deletions, writes, report)
            return report

    async def _plan(self, wanted: Mapping[Path, str], report: RestoreReport) -> dict[str, Step]:
        trees: dict[str, str] = {}
        for path, tree in wanted.items():
            inside = _relative(path, self._worktree)
            if inside and path.is_relative_to(self._directory):
                trees[inside] = tree
            else:
                report.could_not.append(NotRestored(path, OUTSIDE))
        targets = await self._targets(trees)
        current = await self._repository.entries(report.before, trees)
        disk = await asyncio.to_thread(self._look, list(trees))
        return {path: self._step(path, targets.get(path), current.get(path), disk[path]) for path in trees}

    async def _targets(self, trees: Mapping[str, str]) -> dict[str, RestoreTarget]:
        """By path; one whose snapshot cannot be read is left out."""
        entries: dict[str, Entry | None] = {}
        for tree in dict.fromkeys(trees.values()):
            paths = [path for path, its_tree in trees.items() if its_tree == tree]
            with suppress(SnapshotFailed):
                found = await self._repository.entries(tree, paths)
                entries.update({path: found.get(path) for path in paths})
        links = await self._repository.blobs(entry.blob for entry in entries.values() if entry and entry.is_link)
        return {path: RestoreTarget(entry, _why_not_held(entry, links)) for path, entry in entries.items()}

    def _look(self, paths: list[str]) -> dict[str, OnDisk]:
        worktree = Worktree(self._worktree)
        return {path: worktree.look(path) for path in paths}

    def _step(self, path: str, target: RestoreTarget | None, current: Entry | None, on_disk: OnDisk) -> Step:
        if target is None:
            return Refuse(UNREADABLE)
        step = decide_restore(target, current, on_disk)
        if step == Refuse(IGNORED) and self._is_in_other_repository(path):
            return Refuse(OTHER_REPOSITORY)
        return step

    def _is_in_other_repository(self, path: str) -> bool:
        return any((self._worktree / folder / ".git").exists() for folder in PurePath(path).parents[:-1])

    def _sort(self, steps: Mapping[str, Step], report: RestoreReport) -> tuple[list[str], dict[str, Entry]]:
        deletions: list[str] = []
        writes: dict[str, Entry] = {}
        for path, step in steps.items():
            match step:
                case Leave():
                    report.unchanged.append(self._worktree / path)
                case Refuse(reason):
                    report.could_not.append(NotRestored(self._worktree / path, reason))
                case Delete():
                    deletions.append(path)
                case Write(entry):
                    writes[path] = entry
                case _:
                    assert_never(step)
        return deletions, writes

    async def _carry_out(self, deletions: list[str], writes: Mapping[str, Entry], report: RestoreReport) -> None:
        restorer = Restorer(self._worktree, self._directory, report)
        await asyncio.to_thread(restorer.delete, deletions)
        remaining = iter(writes.items())
        while some := dict(islice(remaining, _FILES_IN_MEMORY)):
            await asyncio.to_thread(restorer.write, some, await self._readable(some.values()))

    async def _readable(self, entries: Iterable[Entry]) -> dict[str, bytes]:
        """Contents by blob; the report says which are missing, as a restore that has begun goes on with the others."""
        with suppress(SnapshotFailed):
            return await self._repository.blobs(entry.blob for entry in entries)
        return {}

    async def _to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Half a restore is worse than one that nobody waits for any more."""
        task = asyncio.create_task(work)
        self._unbreakable.add(task)
        task.add_done_callback(self._unbreakable.discard)
        return await asyncio.shield(task)


def _why_not_held(entry: Entry | None, links: Mapping[str, bytes]) -> str | None:
    return placeholder_reason(links.get(entry.blob, b"")) if entry and entry.is_link else None


def _relative(path: Path, root: Path) -> str | None:
    """`path` seen from `root`, "" for `root` itself, None outside it or with a `..` in it."""
    if ".." in path.parts or not path.is_relative_to(root):
        return None
    inside = path.relative_to(root).as_posix()
    return "" if inside == "." else inside
