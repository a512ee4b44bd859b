"""Taking back what a session did: files go back at once, messages stay until the next prompt, and all of it can be undone.

revert    files return to what they were before the target; the session remembers how they were until then
unrevert  they return to that
cleanup   with the next prompt the reverted messages go for good (`clean`)

The caller holds the session (`gate`), so that a prompt comes wholly before it or wholly after. Each has the session's lock to its
end, as it reads the session and writes it back. Before it touches a file the session says what is about to happen (`unfinished`):
a server that is killed then undoes it at its next start.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from app.project.place import Place
from app.schema.errors import unknown
from app.schema.event import ErrorOfSession, EventSessionError
from app.schema.message import MessageWithParts
from app.schema.part import Part
from app.schema.session import FileDiff, NotReverted, Revert, RevertInput, Session
from app.session.change import SessionChange
from app.session.revert_target import RevertTarget, find_target, first_trees, outer_trees, reported_edits, unknown_changes
from app.session.store import Store
from app.session.summary import relative, totals
from app.snapshot.errors import SnapshotFailed
from app.snapshot.restore import NotRestored, RestoreReport
from app.snapshot.snapshots import Snapshots
from app.storage.engine import StorageError
from app.util import clock

log = logging.getLogger(__name__)

SNAPSHOTS_OFF = "the revert in force changed files and snapshots are off now. Turn them on, or send a prompt to keep the files."
TARGET_GONE = "the message that the revert in force went back to is gone. Send a prompt to keep the files as they are."


class Reverts:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def revert(self, place: Place, snapshots: Snapshots | None, session_id: str, wanted: RevertInput) -> Session:
        """The session as it is afterwards; unchanged when nothing has that id. A second revert begins with an unrevert, so that
        its own point holds. Raises SnapshotFailed, having done nothing more than that.

        `dryRun`: nothing is touched or stored; `revert.diff` shows what would become of the files.
        """
        async with self._store.lock(session_id):
            session = await self._store.session(session_id)
            history = await self._store.messages(session_id)
            target = find_target(history, wanted.message_id, wanted.part_id)
            if target is None:
                return session
            diffs = await _diffs(snapshots, place, target)
            if wanted.dry_run:
                revert = await _preview(snapshots, place, target, await _states_before(snapshots, place, session, history))
                return session.model_copy(update={"revert": revert, "summary": totals(diffs)})
            session = await self._unrevert(place, snapshots, session, history)
            revert = await self._revert_files(place, snapshots, session, target)
            change = self._store.change(session_id, place.directory)
            change.put_diff(diffs)
            try:
                return await self._commit(change, session, revert=revert, summary=totals(diffs))
            except StorageError:
                await _restore_after_refusal(snapshots, place, session.model_copy(update={"revert": revert}), history)
                raise

    async def unrevert(self, place: Place, snapshots: Snapshots | None, session_id: str) -> Session:
        """The exact inverse: the files that the revert touched are again what they were before it, and no others. Where that
        fails for some, an event names them. Raises SnapshotFailed, having touched no file."""
        async with self._store.lock(session_id):
            session = await self._store.session(session_id)
            return await self._unrevert(place, snapshots, session, await self._store.messages(session_id))

    async def clean(self, change: SessionChange, session: Session) -> Session:
        """Put the removal of what was reverted into a change. The caller holds the session's lock and commits. A revert whose end
        could not be stored has removed nothing: its files are as they were before it."""
        if session.revert is None:
            return session
        if session.revert.unfinished:
            return session.model_copy(update={"revert": None})
        history = await self._store.messages(session.id)
        at = next((n for n, message in enumerate(history) if message.info.id == session.revert.message_id), len(history))
        gone = history[at:]
        if session.revert.part_id is not None and gone:
            for part in _from_part(gone[0].parts, session.revert.part_id):
                change.remove_part(part.message_id, part.id)
            gone = gone[1:]
        for message in gone:
            change.remove_message(message.info.id)
        return session.model_copy(update={"revert": None})

    async def settle(self, place: Place, session_id: str) -> None:
        """Clean up on its own, before something other than a prompt adds to the session."""
        async with self._store.lock(session_id):
            session = await self._store.session(session_id)
            if session.revert is not None:
                change = self._store.change(session_id, place.directory)
                await self._commit(change, await self.clean(change, session))

    async def _unrevert(
        self, place: Place, snapshots: Snapshots | None, session: Session, history: Sequence[MessageWithParts]
    ) -> Session:
        if session.revert is None:
            return session
        change = self._store.change(session.id, place.directory)
        states = await _states_before(snapshots, place, session, history)
        if snapshots is not None and states:
            _announce_refused(change, await self._put_back(place, snapshots, session, session.revert, states))
        return await self._commit(change, session, revert=None)

    async def _put_back(
        self, place: Place, snapshots: Snapshots, session: Session, revert: Revert, states: dict[Path, str]
    ) -> RestoreReport:
        async def about_to(_before: str) -> None:
            await self._note(place, session, revert.model_copy(update={"unfinished": True}))

        report = await snapshots.restore(states, about_to=about_to)
        if report.could_not and not (report.restored or report.deleted):
            await self._note(place, session, revert)
            raise SnapshotFailed(_not_put_back(report))
        return report

    async def _revert_files(self, place: Place, snapshots: Snapshots | None, session: Session, target: RevertTarget) -> Revert:
        revert = _revert_to(target, place)
        if snapshots is None:
            return revert

        async def about_to(before: str) -> None:
            await self._note(place, session, revert.model_copy(update={"snapshot": before, "unfinished": True}))

        beyond = await _beyond_snapshots(snapshots, place, target)
        report = await snapshots.restore(first_trees(target), about_to=about_to)
        revert.snapshot = report.before
        _note_refused(revert, [*report.could_not, *beyond], place)
        try:
            revert.diff = await snapshots.diff(report.before)
        except SnapshotFailed as failure:
            log.warning("the files are reverted, but there is no diff to show: %s", failure.message)
        return revert

    async def _note(self, place: Place, session: Session, revert: Revert) -> None:
        change = self._store.change(session.id, place.directory)
        change.note_session(session.model_copy(update={"revert": revert}))
        await self._store.commit(change)

    async def _commit(self, change: SessionChange, session: Session, **update: object) -> Session:
        touched = session.time.model_copy(update={"updated": clock.now_ms()})
        session = session.model_copy(update={**update, "time": touched})
        change.update_session(session)
        await self._store.commit_persistently(change)
        return session


async def _restore_after_refusal(
    snapshots: Snapshots | None, place: Place, session: Session, history: Sequence[MessageWithParts]
) -> None:
    """The revert could not be stored, and is stored as unfinished: its files are again as they were before it."""
    states = await _states_before(snapshots, place, session, history)
    if snapshots is not None and states:
        await snapshots.restore(states)


def _announce_refused(change: SessionChange, report: RestoreReport) -> None:
    if report.could_not:
        failure = ErrorOfSession(session_id=change.session_id, error=unknown(f"Some files were {_not_put_back(report)}"))
        change.announce(EventSessionError(properties=failure))


def _not_put_back(report: RestoreReport) -> str:
    return "\n".join(["not put back:", *(f"{item.path}: {item.reason}" for item in report.could_not)])


async def _preview(snapshots: Snapshots | None, place: Place, target: RevertTarget, earlier: dict[Path, str]) -> Revert:
    """`earlier`: what taking back the revert in force would do first."""
    revert = _revert_to(target, place)
    if snapshots is not None:
        report = await snapshots.restore({**earlier, **first_trees(target)}, dry_run=True)
        _note_refused(revert, [*report.could_not, *await _beyond_snapshots(snapshots, place, target)], place)
        revert.diff = await snapshots.diff(report.before, report.after)
    return revert


async def _beyond_snapshots(snapshots: Snapshots, place: Place, target: RevertTarget) -> list[NotRestored]:
    """Files that were edited and stand in no patch: either nothing came of it, or snapshots leave them out and say why."""
    in_patches = first_trees(target)
    edits = {path: tree for file, tree in reported_edits(target).items() if (path := _absolute(file, place)) not in in_patches}
    return (await snapshots.restore(edits, dry_run=True)).could_not if edits else []


def _absolute(file: str, place: Place) -> Path:
    path = Path(place.directory, file)
    return path.parent.resolve() / path.name


def _revert_to(target: RevertTarget, place: Place) -> Revert:
    unknown = [item.model_copy(update={"file": _shown(item.file, place)}) for item in unknown_changes(target)]
    return Revert(message_id=target.message_id, part_id=target.part_id, not_reverted=unknown or None)


def _note_refused(revert: Revert, could_not: Sequence[NotRestored], place: Place) -> None:
    refused = [NotReverted(file=_shown(str(item.path), place), reason=item.reason) for item in could_not]
    revert.not_reverted = [*refused, *(revert.not_reverted or [])] or None


def _shown(file: str, place: Place) -> str:
    """Relative to the checkout, or outside git to the directory."""
    return relative(file, place.worktree if place.is_git else place.directory)


async def _states_before(
    snapshots: Snapshots | None, place: Place, session: Session, history: Sequence[MessageWithParts]
) -> dict[Path, str]:
    """The files that the revert in force touched, each with the snapshot from just before it. Those that it left as they were, or
    could not revert, are not among them: a person may have changed them since. Raises SnapshotFailed when that cannot be told:
    the revert then stays in force, or its snapshot would be forgotten with the files not restored."""
    revert = session.revert
    if revert is None or revert.snapshot is None:
        return {}
    if snapshots is None:
        raise SnapshotFailed(SNAPSHOTS_OFF)
    target = find_target(history, revert.message_id, revert.part_id)
    if target is None:
        raise SnapshotFailed(TARGET_GONE)
    refused = {item.file for item in revert.not_reverted or []}
    trees = {path: tree for path, tree in first_trees(target).items() if _shown(str(path), place) not in refused}
    touched: list[Path] = []
    for tree in dict.fromkeys(trees.values()):
        paths = [path for path, its_tree in trees.items() if its_tree == tree]
        touched += await _differing(snapshots, tree, revert.snapshot, paths)
    return dict.fromkeys(touched, revert.snapshot)


async def _differing(snapshots: Snapshots, before: str, after: str, paths: Sequence[Path]) -> list[Path]:
    """All of them when the one snapshot is no longer kept."""
    try:
        differing = set(await snapshots.patch(before, after))
    except SnapshotFailed:
        return list(paths)
    return [path for path in paths if path in differing]


def _from_part(parts: Sequence[Part], part_id: str) -> Sequence[Part]:
    at = next((place for place, part in enumerate(parts) if part.id == part_id), len(parts))
    return parts[at:]


async def _diffs(snapshots: Snapshots | None, place: Place, target: RevertTarget) -> list[FileDiff]:
    """What the reverted messages had changed; nothing when their snapshots are no longer kept."""
    trees = outer_trees(target)
    if snapshots is None or trees is None:
        return []
    try:
        diffs = await snapshots.diff_full(*trees)
    except SnapshotFailed as failure:
        log.warning("what the reverted messages had changed is not known: %s", failure.message)
        return []
    touched = {_shown(str(path), place) for path in first_trees(target)}
    return [diff for diff in diffs if diff.file in touched]
