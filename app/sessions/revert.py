"""Reverts: files are restored at once, messages stay until the next prompt, and until then the revert can be undone.

revert    restores the files to their state before the target, and stores a snapshot of their present state
unrevert  restores the files to that snapshot
cleanup   the next prompt removes the reverted messages (`remove_reverted`)

The caller has the session for itself (`live.py`), so that a prompt comes entirely before or after. Before a file is touched, the
session's revert is marked as `unfinished`: if the server is killed, another server, or its next
start, undoes the revert (`Recovery`).
"""

import logging
from collections.abc import Sequence
from itertools import dropwhile
from pathlib import Path

from app.project.location import Location
from app.project.snapshot.lock import SnapshotFailed
from app.project.snapshot.restore import NotRestored, RestoreReport
from app.project.snapshot.snapshots import Snapshots
from app.record.engine import StorageError
from app.schema.errors import unknown
from app.schema.event import (
    AnnouncedEvent,
    CommittedRevert,
    ErrorOfSession,
    EventSessionError,
    EventSessionNextRevertCleared,
    EventSessionNextRevertCommitted,
    EventSessionNextRevertStaged,
    SessionMoment,
    StagedRevert,
)
from app.schema.message import MessageWithParts
from app.schema.session import FileDiff, NotReverted, Revert, RevertInput, Session
from app.sessions.lease import PromptsKeptOut
from app.sessions.revert_target import (
    RevertTarget,
    find_target,
    first_trees,
    outer_trees,
    reported_edits,
    revert_state,
    unknown_changes,
)
from app.sessions.session_tx import SessionTx
from app.sessions.store import Store
from app.sessions.summary import relative, totals
from app.sessions.usage import NOTHING, sums_of, sums_of_messages
from app.util import clock
from app.util.project_files import resolved

log = logging.getLogger(__name__)

SNAPSHOTS_OFF = "the revert in force changed files and snapshots are off now. Turn them on, or send a prompt to keep the files."
TARGET_GONE = "the message that the revert in force went back to is gone. Send a prompt to keep the files as they are."


class Reverts:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def revert(self, location: Location, snapshots: Snapshots | None, session_id: str, wanted: RevertInput) -> Session:
        """Returns the resulting session; unchanged if nothing has that id. A second revert begins with an unrevert of the files:
        clients see the outcome alone, never a session without a revert. Raises SnapshotFailed, having done at most the unrevert,
        which is announced then.

        With `dryRun`, nothing is touched or stored; `revert.diff` shows what would change in the files.
        """
        session, history = await self._store.session_and_messages(session_id)
        target = find_target(history, wanted.message_id, wanted.part_id)
        if target is None:
            return session
        diffs = await _diffs(snapshots, location, target)
        if wanted.dry_run:
            before = await _snapshots_before_revert(snapshots, location, session, history)
            revert = await _preview(snapshots, location, target, before)
            return session.model_copy(update={"revert": revert, "summary": totals(diffs), "no_undo": location.no_undo})
        events = await self._unrevert_files(location, snapshots, session, history)
        try:
            revert = await self._revert_files(location, snapshots, session_id, target, wanted)
        except (SnapshotFailed, StorageError):
            if session.revert is not None:
                await self._store.write_persistently(session_id, location.directory, lambda tx: _end(tx, events))
            raise
        try:
            return await self._store.write_persistently(
                session_id, location.directory, lambda tx: _stage(tx, events, revert, diffs)
            )
        except StorageError:
            # The files from before are restored. The revert stays stored as unfinished.
            reverted = session.model_copy(update={"revert": revert})
            states = await _snapshots_before_revert(snapshots, location, reverted, history)
            if snapshots is not None and states:
                await snapshots.restore(states, is_undo=True)
            raise

    async def unrevert(self, location: Location, snapshots: Snapshots | None, session_id: str) -> Session:
        """Restores exactly the files that the revert changed. An event names the files that could not be restored.
        Raises SnapshotFailed, having touched no file."""
        session, history = await self._store.session_and_messages(session_id)
        if session.revert is None:
            return session
        events = await self._unrevert_files(location, snapshots, session, history)
        return await self._store.write_persistently(session_id, location.directory, lambda tx: _end(tx, events))

    async def clean_up(self, location: Location, session_id: str) -> None:
        """Removes the reverted messages in a change of its own, before something other than a prompt adds to the session. Raises
        SessionBusy while the revert is unfinished."""

        def clean_up(tx: SessionTx) -> None:
            session = tx.session()
            if session.revert is not None:
                remove_reverted(tx, session)
                tx.edit(lambda session: session.model_copy(update={"revert": None}))

        await self._store.write_persistently(session_id, location.directory, clean_up)

    async def _unrevert_files(
        self, location: Location, snapshots: Snapshots | None, session: Session, history: Sequence[MessageWithParts]
    ) -> list[AnnouncedEvent]:
        """Returns the events to announce with the change. If that change is not stored, the revert stays stored as unfinished."""
        if session.revert is None:
            return []
        events: list[AnnouncedEvent] = []
        states = await _snapshots_before_revert(snapshots, location, session, history)
        if snapshots is not None and states:
            report = await self._put_back(location, snapshots, session.id, session.revert, states)
            if report.failures:
                failure = ErrorOfSession(session_id=session.id, error=unknown(f"Some files were {_failure_text(report)}"))
                events.append(EventSessionError(properties=failure))
        return [*events, EventSessionNextRevertCleared(properties=SessionMoment(session_id=session.id, timestamp=clock.now_ms()))]

    async def _put_back(
        self, location: Location, snapshots: Snapshots, session_id: str, revert: Revert, states: dict[Path, str]
    ) -> RestoreReport:
        async def before_restore(_before: str) -> None:
            await self._store_revert(location, session_id, revert.model_copy(update={"unfinished": True}))

        report = await snapshots.restore(states, is_undo=True, before_restore=before_restore)
        if report.failures and not (report.restored or report.deleted):
            await self._store_revert(location, session_id, revert)
            raise SnapshotFailed(_failure_text(report))
        return report

    async def _revert_files(
        self, location: Location, snapshots: Snapshots | None, session_id: str, target: RevertTarget, wanted: RevertInput
    ) -> Revert:
        if not wanted.files:
            return Revert(message_id=target.message_id, part_id=target.part_id)
        revert = _revert_to(target, location)
        if snapshots is None:
            return revert

        async def before_restore(before: str) -> None:
            await self._store_revert(location, session_id, revert.model_copy(update={"snapshot": before, "unfinished": True}))

        beyond = await _uncovered_edits(snapshots, location, target)
        report = await snapshots.restore(first_trees(target), before_restore=before_restore)
        revert.snapshot = report.before
        _add_failures(revert, [*report.failures, *beyond], location)
        try:
            revert.diff = await snapshots.diff(report.before)
        except SnapshotFailed as failure:
            log.warning("the files are reverted, but their diff failed: %s", failure.message)
        return revert

    async def _store_revert(self, location: Location, session_id: str, revert: Revert) -> None:
        """Unannounced: only the outcome is."""
        await self._store.write(
            session_id,
            location.directory,
            lambda tx: tx.put_unannounced(tx.session().model_copy(update={"revert": revert})),
        )


def remove_reverted(tx: SessionTx, session: Session) -> None:
    """Removes the reverted messages for good. Raises PromptsKeptOut while the revert is unfinished: its files come back first."""
    revert = session.revert
    if revert is None:
        return
    if revert.unfinished:
        raise PromptsKeptOut(session.id)
    committed = CommittedRevert(session_id=session.id, timestamp=clock.now_ms(), message_id=revert.message_id)
    tx.announce(EventSessionNextRevertCommitted(properties=committed))
    gone = list(dropwhile(lambda message: message.info.id != revert.message_id, tx.messages()))
    removed = NOTHING
    if revert.part_id is not None and gone:
        parts = list(dropwhile(lambda part: part.id != revert.part_id, gone[0].parts))
        for part in parts:
            tx.remove_part(part.message_id, part.id)
        gone, removed = gone[1:], sums_of(parts)
    for message in gone:
        tx.remove_message(message.info.id)
    tx.add_to_sums(NOTHING.plus(removed.plus(sums_of_messages(gone)), -1))


def _stage(tx: SessionTx, events: Sequence[AnnouncedEvent], revert: Revert, diffs: Sequence[FileDiff]) -> Session:
    for event in events:
        tx.announce(event)
    tx.put_diff(diffs)
    staged = StagedRevert(session_id=tx.session_id, timestamp=clock.now_ms(), revert=revert_state(revert))
    tx.announce(EventSessionNextRevertStaged(properties=staged))
    return tx.edit(lambda session: session.model_copy(update={"revert": revert, "summary": totals(diffs)}))


def _end(tx: SessionTx, events: Sequence[AnnouncedEvent]) -> Session:
    for event in events:
        tx.announce(event)
    return tx.edit(lambda session: session.model_copy(update={"revert": None}))


def _failure_text(report: RestoreReport) -> str:
    return "\n".join(["not put back:", *(f"{item.path}: {item.reason}" for item in report.failures)])


async def _preview(snapshots: Snapshots | None, location: Location, target: RevertTarget, earlier: dict[Path, str]) -> Revert:
    """`earlier`: the snapshots that undoing the revert in force would restore first."""
    revert = _revert_to(target, location)
    if snapshots is not None:
        report = await snapshots.restore({**earlier, **first_trees(target)}, dry_run=True)
        _add_failures(revert, [*report.failures, *await _uncovered_edits(snapshots, location, target)], location)
        revert.diff = await snapshots.diff(report.before, report.after)
    return revert


async def _uncovered_edits(snapshots: Snapshots, location: Location, target: RevertTarget) -> list[NotRestored]:
    """Edited files without a patch that snapshots do not cover, each with the reason."""
    in_patches = first_trees(target)
    edits = {path: tree for file, tree in reported_edits(target).items() if (path := _absolute(file, location)) not in in_patches}
    return (await snapshots.restore(edits, dry_run=True)).failures if edits else []


def _absolute(file: str, location: Location) -> Path:
    path = Path(location.directory, file)
    return Path(resolved(path.parent) or path.parent) / path.name


def _revert_to(target: RevertTarget, location: Location) -> Revert:
    left = [item.model_copy(update={"file": _display_path(item.file, location)}) for item in unknown_changes(target)]
    if location.no_undo is not None:
        files = [*(_display_path(str(path), location) for path in first_trees(target)), *(item.file for item in left)]
        left = [NotReverted(file=file, reason=f"no undo here: {location.no_undo}") for file in dict.fromkeys(files)]
    return Revert(message_id=target.message_id, part_id=target.part_id, not_reverted=left or None)


def _add_failures(revert: Revert, failures: Sequence[NotRestored], location: Location) -> None:
    refused = [NotReverted(file=_display_path(str(item.path), location), reason=item.reason) for item in failures]
    revert.not_reverted = [*refused, *(revert.not_reverted or [])] or None


def _display_path(file: str, location: Location) -> str:
    return relative(file, location.files_root)


async def _snapshots_before_revert(
    snapshots: Snapshots | None, location: Location, session: Session, history: Sequence[MessageWithParts]
) -> dict[Path, str]:
    """The files that the revert in force changed, each with its snapshot from before. Excludes files that the revert left
    unchanged or could not revert: the user may have changed them since. Raises SnapshotFailed if this cannot be determined; the
    revert then stays in force, so that its snapshot is not lost."""
    revert = session.revert
    if revert is None or revert.snapshot is None:
        return {}
    if snapshots is None:
        raise SnapshotFailed(SNAPSHOTS_OFF)
    target = find_target(history, revert.message_id, revert.part_id)
    if target is None:
        raise SnapshotFailed(TARGET_GONE)
    refused = {item.file for item in revert.not_reverted or []}
    trees = {path: tree for path, tree in first_trees(target).items() if _display_path(str(path), location) not in refused}
    touched: list[Path] = []
    for tree in dict.fromkeys(trees.values()):
        paths = [path for path, its_tree in trees.items() if its_tree == tree]
        touched += await _differing(snapshots, tree, revert.snapshot, paths)
    return dict.fromkeys(touched, revert.snapshot)


async def _differing(snapshots: Snapshots, before: str, after: str, paths: Sequence[Path]) -> list[Path]:
    """The paths that differ between two snapshots; all of them if a snapshot is no longer kept."""
    try:
        differing = set(await snapshots.patch(before, after))
    except SnapshotFailed:
        return list(paths)
    return [path for path in paths if path in differing]


async def _diffs(snapshots: Snapshots | None, location: Location, target: RevertTarget) -> list[FileDiff]:
    """The changes of the reverted messages; empty if their snapshots are no longer kept."""
    trees = outer_trees(target)
    if snapshots is None or trees is None:
        return []
    try:
        diffs = await snapshots.diff_full(*trees)
    except SnapshotFailed as failure:
        log.warning("the diff of the reverted messages failed: %s", failure.message)
        return []
    touched = {_display_path(str(path), location) for path in first_trees(target)}
    return [diff for diff in diffs if diff.file in touched]
