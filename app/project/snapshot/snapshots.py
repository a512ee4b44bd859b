"""Snapshots of a directory's files: taken before and after every step of a turn, compared for diffs, restored by revert.

A snapshot contains the files and links of the covered directory that ignore rules do not leave out, with content and executable
bit. The rules are in a checkout those of its git, elsewhere those of `.gitignore` and `.ignore` files. It does not contain the
content of large, special or unreadable files (their changes are detected), empty directories, the files of nested repositories
and submodules, and names that are not UTF-8.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path, PurePath
from typing import TypeVar

from app.project.sandbox.git import Git
from app.project.snapshot import extent
from app.project.snapshot.capture import (
    MAX_PATHS,
    SETTLED_MS,
    OnDisk,
    PathState,
    Staging,
    StatCache,
    Worktree,
    path_state,
    placeholder_reason,
    rule_states,
    searched_places,
)
from app.project.snapshot.lock import SnapshotFailed, collection_lock, repository_lock
from app.project.snapshot.repository import ALL_FILES, MAX_TEXT_BYTES, Repository, Signature
from app.project.snapshot.restore import (
    IGNORED,
    OTHER_REPOSITORY,
    OUTSIDE,
    UNREADABLE,
    WAS_IGNORED,
    WAS_OTHERS,
    NotRestored,
    Refuse,
    Restorer,
    RestoreReport,
    RestoreStep,
    RestoreTarget,
    decide_restore,
)
from app.project.snapshot.trees import Entry
from app.record.postgres import Locks
from app.schema.session import FileDiff
from app.util import clock
from app.util.tasks import ProcessLocks, TaskSet, forget_failure

T = TypeVar("T")
_FILES_IN_MEMORY = 64
_STATS_RETRY_MS = 3000
"""How long after a try the stats are taken again, if they are still needed."""
_STATS_RETRY_OF_MANY_MS = 600_000
"""The same in a directory with more than MAX_PATHS files, whose stats are not taken."""
_STATS_IN_LOOP = 100
"""Up to so many stats take less time in the event loop than a change of thread."""
_REMEASURE_SECONDS = 60
_KEPT_IF_FULL_SECONDS = (3 * 24 * 3600, 24 * 3600)
_PAUSE_SECONDS = 600.0
"""How long snapshots pause after a failure that would come again, for which each step would wait."""


def snapshot_dir(data_dir: Path, project_id: str, worktree: Path) -> Path:
    """Each checkout of a project has its own repository, because checkouts cannot share an index. The repository is where
    OpenCode has it, for editors' plugins that read it; one with the former name keeps that."""
    project, path = data_dir / "snapshot" / project_id, str(worktree).encode("utf-8", "surrogateescape")
    former = project / hashlib.sha256(path).hexdigest()[:16]
    return former if former.exists() else project / hashlib.sha1(path, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class _IndexState:
    """The state of the index after the last snapshot: its tree and its placeholders. `stats`: the worktree's at that time."""

    signature: Signature | None
    tree: str
    placeholders: Mapping[str, bytes]
    stats: StatCache | None = None


class SnapshotQuota:
    """The limit on the disk space of a checkout's snapshots. `max_bytes`: None for no limit."""

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._measured_at = float("-inf")
        self.is_full = False

    async def require_room(self, repository: Repository) -> None:
        """Raises SnapshotFailed if the snapshots were too large at the last measurement."""
        if self._max_bytes is None:
            return
        if time.monotonic() - self._measured_at > _REMEASURE_SECONDS:
            self._size, self._measured_at = await repository.size(), time.monotonic()
            self.is_full = self._size > self._max_bytes
        if self.is_full:
            raise SnapshotFailed(
                f"those of this checkout take {self._size} bytes, and {self._max_bytes} are allowed "
                "(OPENSESSION_MAX_SNAPSHOT_BYTES)"
            )

    async def make_room(self, repository: Repository) -> None:
        """Deletes older snapshots until the rest fits, but keeps those of the last day. The caller holds the lock."""
        for kept in _KEPT_IF_FULL_SECONDS:
            if self._max_bytes is None or await repository.size() <= self._max_bytes:
                break
            await repository.collect(kept, is_alone=True)
        self._measured_at = float("-inf")


class Snapshots:
    """Snapshots of one directory. A snapshot's name is the hash of its tree; it is kept for seven days after its last use.

    Every method raises SnapshotFailed if git fails; `restore` has then changed no file.
    """

    def __init__(
        self,
        git_dir: Path,
        project: Git,
        directory: Path,
        exclude: Sequence[Path] = (),
        *,
        max_bytes: int | None = None,
        locks: Locks | None = None,
    ) -> None:
        """`project`: git in the checkout, or in a directory without git. `directory`: the part of it that snapshots cover.
        `exclude`: directories they leave out. `max_bytes`: what all snapshots may take. `locks`: the database's."""
        self._quota = SnapshotQuota(max_bytes)
        git_dir = git_dir.absolute()
        self._held = project.directory
        self._worktree = project.directory.real
        self._directory = directory.resolve()
        self._has_bounds = project.repository is None
        self._excluded = list(filter(None, (_relative(path.resolve(), self._worktree) for path in exclude)))
        scope = _relative(self._directory, self._worktree) or ""
        made_by_tools = extent.MADE_BY_TOOLS if self._has_bounds else ()
        self._repository = Repository(git_dir, project, self._worktree, scope, self._excluded, made_by_tools)
        self._paused_until = 0.0
        self._locks = locks or ProcessLocks()
        self._lock = partial(repository_lock, git_dir, self._locks)
        self._known: _IndexState | None = None
        self._stats_wait_until_ms = 0
        self._has_new_trees = True
        self._running: asyncio.Task[str] | None = None
        self._next: asyncio.Task[str] | None = None
        self._restores = TaskSet()

    async def track(self) -> str:
        """Takes a snapshot and returns the hash of its tree. The snapshot begins after this call. Calls that come while one is
        taken share the next one, which goes on if one of them is cancelled."""
        await self._quota.require_room(self._repository)
        if self._next is None:
            self._next = asyncio.create_task(self._track_after(self._running))
            self._next.add_done_callback(forget_failure)
        return await asyncio.shield(self._next)

    async def no_undo(self) -> str | None:
        """Why a directory without git has no snapshots; None if it has. Stops counting its files at the bounds."""
        directory, skipped = str(self._directory), {f"{self._worktree}/{path}" for path in self._excluded}
        if refused := extent.refusal(self._directory):
            return refused
        try:
            excess = await asyncio.to_thread(lambda: extent.excess(extent.sizes_below(directory, skipped)))
            return await self._excess_of_listed() if excess and extent.has_ignore_rules(directory) else excess
        except SnapshotFailed as failure:
            return extent.SLOW if failure.is_final else failure.reason
        except OSError as error:
            return str(error)

    async def _excess_of_listed(self) -> str | None:
        """Counts only the files that ignore rules do not leave out. Raises SnapshotFailed, OSError."""
        async with self._lock() as lock:
            await self._repository.prepare()
            listed = await self._repository.listed(lock, ALL_FILES, extent.MAX_SECONDS)
        return await asyncio.to_thread(lambda: extent.excess(extent.sizes_of(f"{self._worktree}/{path}" for path in listed)))

    async def has(self, tree: str) -> bool:
        """Whether there is such a snapshot."""
        try:
            await self._repository.entries(tree, ["."])
        except SnapshotFailed:
            return False
        return True

    async def adopt(self, source: Path, trees: Iterable[str]) -> None:
        """Takes snapshots over from another repository (its absolute git directory), which has all their objects."""
        await self._quota.require_room(self._repository)
        async with self._lock():
            await self._repository.prepare()
            await self._repository.adopt(source, trees)

    async def patch(self, tree: str, until: str | None = None) -> list[Path]:
        """Absolute paths that changed between a snapshot and a later one, by default one taken now."""
        later = until or await self.track()
        return [self._worktree / path for path in await self._repository.changed(tree, later)] if tree != later else []

    async def diff(self, before: str, after: str | None = None) -> str:
        """A unified diff from one snapshot to another, by default to one taken now."""
        return await self._repository.diff_text(before, after or await self.track())

    async def diff_full(self, before: str, after: str) -> list[FileDiff]:
        """Each changed file with both texts, a patch and line counts. Texts beyond MAX_TEXT_BYTES are left out, and all patches
        if these are too large. A rename is a deletion and an addition."""
        if before == after:
            return []
        changes = await self._repository.changes(before, after)
        contents = await self._repository.blobs((blob for change in changes for blob in change.blobs()), MAX_TEXT_BYTES)
        return [change.as_file_diff(contents) for change in changes]

    async def restore(
        self,
        wanted: Mapping[Path, str],
        *,
        dry_run: bool = False,
        is_undo: bool = False,
        before_restore: Callable[[str], Awaitable[None]] | None = None,
    ) -> RestoreReport:
        """Restores each path's content, executable bit and type from its snapshot, or deletes it if the snapshot has no such
        path, unless the snapshot's ignore rules left it out.

        No other file is touched; a directory that a deletion empties is removed too, as in git. A dry run only reports.
        `is_undo`: an earlier restore made what is missing in the snapshots.
        `before_restore` is called before the first file is touched, with a snapshot of the present state; if it raises, nothing
        is restored. Runs to completion even if the caller is cancelled: a half-restored tree is worse.
        """
        work = self._restore(wanted, dry_run, is_undo, before_restore)
        return await asyncio.shield(self._restores.start(work, f"restore in {self._directory}"))

    async def gc(self) -> None:
        """Deletes old snapshots. Does nothing if none was taken since the last time, unless the quota is exceeded."""
        if not self._has_new_trees and not self._quota.is_full:
            return
        async with collection_lock(self._repository.git_dir, self._locks):
            async with self._lock() as lock:
                await self._repository.prepare()
                await self._repository.refresh(lock)
            self._has_new_trees = False
            await self._repository.collect()
            async with self._lock():
                await self._quota.make_room(self._repository)

    # Taking one.

    async def _track_after(self, earlier: "asyncio.Task[str] | None") -> str:
        if earlier is not None and not earlier.done():
            await asyncio.wait([earlier])
        self._running, self._next = self._next, None
        if time.monotonic() < self._paused_until:
            raise SnapshotFailed("an earlier one could not be taken in time; it is tried again in some minutes")
        known = self._known
        if known is not None and known.stats is not None and await self._is_unchanged(known, known.stats):
            self._repository.keep(known.tree)
            return known.tree
        async with self._lock() as lock:
            return await self._capture(lock)

    async def _is_unchanged(self, known: _IndexState, stats: StatCache) -> bool:
        if known.signature != self._repository.index_signature():
            return False
        return stats.is_current() if len(stats) <= _STATS_IN_LOOP else await asyncio.to_thread(stats.is_current)

    async def _capture(self, lock: int | None) -> str:
        """Retries once, because a file may vanish while git reads it; then again without the index, which may be damaged."""
        for _ in range(2):
            try:
                return await self._capture_once(lock)
            except SnapshotFailed as failure:
                if failure.is_final:
                    self._paused_until = time.monotonic() + _PAUSE_SECONDS
                    raise
                if "Invalid path" in failure.reason:
                    await asyncio.to_thread(self._repository.leave_out_repositories)
        self._repository.drop_index()
        return await self._capture_once(lock)

    async def _capture_once(self, lock: int | None) -> str:
        began_ms = clock.now_ms()
        try:
            await self._repository.prepare()
            rules = rule_states(self._repository.rule_files)
            known = self._known if self._known and self._known.signature == self._repository.index_signature() else None
            staging = await self._stage(known, lock)
            tree = await self._write(staging, known, lock)
            self._repository.note_repositories_inside(tree, staging.repositories)
            if known is not None and known is self._known:
                await self._cache_stats(known, rules, began_ms)
        except OSError as error:
            raise SnapshotFailed(str(error)) from error
        self._repository.keep(tree)
        return tree

    async def _stage(self, known: _IndexState | None, lock: int | None) -> Staging:
        listed = await self._repository.listed(lock)
        if known is None:
            listed += await self._repository.tracked_though_ignored()
        if self._has_bounds and len(listed) > extent.MAX_FILES:
            raise SnapshotFailed(f"{len(listed):,} files are new or changed, and {extent.MAX_FILES:,} allowed", is_final=True)
        return await asyncio.to_thread(self._with_worktree, lambda worktree: worktree.stage(listed)) if listed else Staging()

    def _with_worktree(self, work: Callable[[Worktree], T]) -> T:
        try:
            root = self._held.opened()
        except OSError as error:
            raise SnapshotFailed(str(error)) from error
        try:
            return work(Worktree(root))
        finally:
            os.close(root)

    async def _write(self, staging: Staging, known: _IndexState | None, lock: int | None) -> str:
        to_place = dict(staging.placeholders.items() - (known.placeholders if known else {}).items())
        if staging.update:
            await self._repository.update(staging.update, lock)
        if to_place or staging.remove:
            await self._repository.put(to_place, staging.remove, lock)
        if known and not (staging.update or staging.remove or to_place):
            return known.tree
        tree = await self._repository.write_tree(lock)
        self._known = _IndexState(self._repository.index_signature(), tree, staging.placeholders)
        self._has_new_trees = True
        if known:
            self._stats_wait_until_ms = clock.now_ms() + SETTLED_MS  # nothing that was changed just before is cached
        return tree

    async def _cache_stats(self, known: _IndexState, rules: Mapping[str, PathState | None], began_ms: int) -> None:
        """For a snapshot that began at `began_ms` and found nothing new. `rules`: the files with ignore rules as they were before
        it. If the stats cannot be taken, the next snapshot runs git again."""
        if known.signature is None or began_ms < self._stats_wait_until_ms:
            return
        self._stats_wait_until_ms = began_ms + _STATS_RETRY_MS
        with suppress(SnapshotFailed, OSError):
            files, ignored = await self._repository.files_and_ignored()
            if len(files) > MAX_PATHS:
                self._stats_wait_until_ms = began_ms + _STATS_RETRY_OF_MANY_MS
                return
            stats = await asyncio.to_thread(self._take_stats, files, [*rules], ignored, began_ms)
            if stats is not None and rules.items() <= stats.rules.items():
                self._known = replace(known, stats=stats)

    def _take_stats(self, files: list[str], rules: list[str], ignored: set[str], began_ms: int) -> StatCache | None:
        """Raises OSError."""
        found = searched_places(str(self._worktree), str(self._directory), ignored)
        if found is None:
            return None
        folders, inner_rules = found
        return StatCache.of([*files, *folders], [*rules, *inner_rules], began_ms)

    # Restoring.

    async def _restore(
        self,
        wanted: Mapping[Path, str],
        dry_run: bool,
        is_undo: bool,
        before_restore: Callable[[str], Awaitable[None]] | None,
    ) -> RestoreReport:
        async with self._lock() as lock:
            seen = await asyncio.to_thread(self._states, wanted)
            report = RestoreReport(await self._capture(lock))
            restorer = Restorer(self._held, self._directory, report, seen)
            deletions, writes = restorer.sort(await self._plan(wanted, report, is_undo))
            if dry_run:
                report.deleted += [self._worktree / path for path in deletions]
                report.restored += [self._worktree / path for path in writes]
                changed = {**dict.fromkeys(deletions), **writes}
                report.after = await self._repository.tree_with(report.before, changed, lock) if changed else report.before
            else:
                if before_restore is not None:
                    await before_restore(report.before)
                await self._carry_out(restorer, deletions, writes)
            return report

    def _states(self, wanted: Iterable[Path]) -> dict[str, PathState | None]:
        return {inside: path_state(str(path)) for path in wanted if (inside := _relative(path, self._worktree))}

    async def _plan(self, wanted: Mapping[Path, str], report: RestoreReport, is_undo: bool) -> dict[str, RestoreStep]:
        trees: dict[str, str] = {}
        for path, tree in wanted.items():
            inside = _relative(path, self._worktree)
            if inside and path.is_relative_to(self._directory):
                trees[inside] = tree
            else:
                report.failures.append(NotRestored(path, OUTSIDE))
        targets = await self._targets(trees)
        current = await self._repository.entries(report.before, trees)
        disk = await asyncio.to_thread(self._with_worktree, lambda found: {path: found.look(path) for path in trees})
        steps = {path: self._step(path, targets.get(path), current.get(path), disk[path]) for path in trees}
        deletions = [path for path, step in steps.items() if step == "delete"]
        return steps if is_undo else {**steps, **await self._kept_as_left_out(deletions, trees)}

    async def _kept_as_left_out(self, paths: Sequence[str], trees: Mapping[str, str]) -> dict[str, RestoreStep]:
        """Refuses to delete files that their snapshot left out: they may have been there when it was taken."""
        found: dict[str, RestoreStep] = {}
        try:
            for tree in {trees[path] for path in paths}:
                of_tree = [path for path in paths if trees[path] == tree]
                found |= dict.fromkeys(await self._repository.ignored_by(tree, of_tree), Refuse(WAS_IGNORED))
                nested = await asyncio.to_thread(self._repository.repositories_inside, tree)
                in_nested = [path for path in of_tree if any(f"{folder}/" in nested for folder in PurePath(path).parents)]
                found |= dict.fromkeys(in_nested, Refuse(WAS_OTHERS))
        except OSError as error:
            raise SnapshotFailed(str(error)) from error
        return found

    async def _targets(self, trees: Mapping[str, str]) -> dict[str, RestoreTarget]:
        """By path, without paths whose snapshot cannot be read."""
        entries: dict[str, Entry | None] = {}
        for tree in dict.fromkeys(trees.values()):
            paths = [path for path, its_tree in trees.items() if its_tree == tree]
            with suppress(SnapshotFailed):
                found = await self._repository.entries(tree, paths)
                entries.update({path: found.get(path) for path in paths})
        links = await self._repository.blobs(entry.blob for entry in entries.values() if entry and entry.is_link)
        return {
            path: RestoreTarget(entry, placeholder_reason(links.get(entry.blob, b"")) if entry and entry.is_link else None)
            for path, entry in entries.items()
        }

    def _step(self, path: str, target: RestoreTarget | None, current: Entry | None, on_disk: OnDisk) -> RestoreStep:
        if target is None:
            return Refuse(UNREADABLE)
        step = decide_restore(target, current, on_disk)
        folders = PurePath(path).parents[:-1]
        if step == Refuse(IGNORED) and any((self._worktree / folder / ".git").exists() for folder in folders):
            return Refuse(OTHER_REPOSITORY)
        return step

    async def _carry_out(self, restorer: Restorer, deletions: list[str], writes: Mapping[str, Entry]) -> None:
        await asyncio.to_thread(restorer.keep_unchanged)
        await asyncio.to_thread(restorer.delete, deletions)
        remaining = iter(writes.items())
        while some := dict(islice(remaining, _FILES_IN_MEMORY)):
            contents: dict[str, bytes] = {}
            with suppress(SnapshotFailed):  # the report lists what is missing; the restore goes on with other files
                contents = await self._repository.blobs(entry.blob for entry in some.values())
            await asyncio.to_thread(restorer.write, some, contents)


def _relative(path: Path, root: Path) -> str | None:
    """`path` relative to `root`; "" for `root` itself, None outside it or for a path with `..`."""
    if ".." in path.parts or not path.is_relative_to(root):
        return None
    inside = path.relative_to(root).as_posix()
    return "" if inside == "." else inside
