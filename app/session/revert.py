"""Taking back what a session did: files go back at once, messages stay until the next prompt, and all of it can be undone.

revert    files return to what they were before the target; the session remembers how they were until then
unrevert  they return to that
cleanup   with the next prompt the reverted messages go for good (`clean`)
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.schema.message import MessageWithParts, UserMessage
from app.schema.part import Part, PatchPart, StepFinishPart, StepStartPart, TextPart, ToolPart
from app.schema.session import FileDiff, NotReverted, Revert, RevertInput, Session
from app.schema.tool_state import Completed
from app.session.change import SessionChange
from app.session.store import Store
from app.session.summary import relative, totals
from app.snapshot.restore import RestoreReport
from app.snapshot.snapshots import Snapshots
from app.util import clock
from app.workspace.place import Place

CHANGING_TOOLS = ("edit", "write", "multiedit", "apply_patch", "bash", "task")


@dataclass(frozen=True, slots=True)
class Target:
    """Where the session goes back to: before a message, or before a part of it."""

    message_id: str
    part_id: str | None
    undone: list[MessageWithParts]
    """What would go, the first message from the part on."""


def find_target(history: Sequence[MessageWithParts], message_id: str, part_id: str | None) -> Target | None:
    """None when nothing has that id. A part is a target of its own only when text or a call stands before it in its message;
    otherwise, as for a whole answer, the prompt that led to it is the target."""
    prompt_at: int | None = None
    for at, message in enumerate(history):
        if isinstance(message.info, UserMessage):
            prompt_at = at
        place = _place_of(message, message_id, part_id)
        if place is None:
            continue
        if part_id is not None and any(isinstance(part, TextPart | ToolPart) for part in message.parts[:place]):
            rest = MessageWithParts.model_construct(info=message.info, parts=message.parts[place:])
            return Target(message.info.id, part_id, [rest, *history[at + 1 :]])
        start = at if prompt_at is None else prompt_at
        return Target(history[start].info.id, None, list(history[start:]))
    return None


def _place_of(message: MessageWithParts, message_id: str, part_id: str | None) -> int | None:
    if part_id is None:
        return 0 if message.info.id == message_id else None
    return next((place for place, part in enumerate(message.parts) if part.id == part_id), None)


def first_trees(undone: Iterable[MessageWithParts]) -> dict[Path, str]:
    """For each file that was changed, the snapshot from before its first change."""
    trees: dict[Path, str] = {}
    for part in _parts(undone):
        if isinstance(part, PatchPart):
            for file in part.files:
                trees.setdefault(Path(file), part.hash)
    return trees


def unknown_changes(undone: Sequence[MessageWithParts]) -> list[NotReverted]:
    """Calls that may have changed files in steps of which there is no snapshot."""
    found = []
    for message in undone:
        has_snapshot = any(isinstance(part, StepStartPart) and part.snapshot for part in message.parts)
        for part in message.parts:
            if isinstance(part, ToolPart) and part.tool in CHANGING_TOOLS and not has_snapshot and _ran(part):
                file = (part.state.input.get("filePath") or part.tool) if isinstance(part.state.input, dict) else part.tool
                found.append(NotReverted(file=str(file), reason="there is no snapshot of this step"))
    return found


def _ran(part: ToolPart) -> bool:
    return isinstance(part.state, Completed)


def _parts(messages: Iterable[MessageWithParts]) -> Iterable[Part]:
    return (part for message in messages for part in message.parts)


class Reverts:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def revert(self, place: Place, snapshots: Snapshots | None, session_id: str, wanted: RevertInput) -> Session:
        """The session as it is afterwards; unchanged when nothing has that id. A second revert takes the first back, so that its
        own point holds. Raises SnapshotFailed, having touched no file.

        `dryRun`: nothing is touched or stored; `revert.diff` shows what would become of the files.
        """
        session = await self._store.session(session_id)
        history = await self._store.messages(session_id)
        target = find_target(history, wanted.message_id, wanted.part_id)
        if target is None:
            return session
        if wanted.dry_run:
            return await self._preview(place, snapshots, session, history, target)
        await self.unrevert(place, snapshots, session_id)
        revert = _revert_to(target)
        if snapshots is not None:
            report = await snapshots.restore(first_trees(target.undone))
            revert.snapshot = report.before
            revert.diff = await snapshots.diff(report.before)
            _note_refused(revert, report, place)
        return await self._store_revert(place, session_id, revert, await _diffs(snapshots, place, target.undone))

    async def unrevert(self, place: Place, snapshots: Snapshots | None, session_id: str) -> Session:
        """The exact inverse: the files that the revert touched are again what they were before it, and no others."""
        session = await self._store.session(session_id)
        if session.revert is None:
            return session
        states = _undoing(session, await self._store.messages(session_id))
        if snapshots is not None and states:
            await snapshots.restore(states)
        return await self._store.update_session(
            session_id, place.directory, lambda stored: stored.model_copy(update={"revert": None})
        )

    async def clean(self, change: SessionChange, session: Session) -> Session:
        """Put the removal of what was reverted into a change. The caller holds the session's lock and commits."""
        if session.revert is None:
            return session
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
            if session.revert is None:
                return
            change = self._store.change(session_id, place.directory)
            cleaned = await self.clean(change, session)
            cleaned.time.updated = clock.now_ms()
            change.update_session(cleaned)
            await self._store.commit(change)

    async def _preview(
        self,
        place: Place,
        snapshots: Snapshots | None,
        session: Session,
        history: Sequence[MessageWithParts],
        target: Target,
    ) -> Session:
        revert, diffs = _revert_to(target), []
        if snapshots is not None:
            trees = {**_undoing(session, history), **first_trees(target.undone)}
            report = await snapshots.restore(trees, dry_run=True)
            _note_refused(revert, report, place)
            touched = {path: trees[path] for path in (*report.restored, *report.deleted)}
            diffs = await _would_change(snapshots, place, report.before, touched)
            revert.diff = "".join(map(_unified, diffs))
        return session.model_copy(update={"revert": revert, "summary": totals(diffs)})

    async def _store_revert(self, place: Place, session_id: str, revert: Revert, diffs: list[FileDiff]) -> Session:
        change = self._store.change(session_id, place.directory)
        change.put_diff(diffs)
        await self._store.commit(change)

        def edit(stored: Session) -> Session:
            return stored.model_copy(update={"revert": revert, "summary": totals(diffs)})

        return await self._store.update_session(session_id, place.directory, edit)


def _revert_to(target: Target) -> Revert:
    return Revert(message_id=target.message_id, part_id=target.part_id, not_reverted=unknown_changes(target.undone) or None)


def _note_refused(revert: Revert, report: RestoreReport, place: Place) -> None:
    refused = [NotReverted(file=relative(str(item.path), place.worktree), reason=item.reason) for item in report.could_not]
    revert.not_reverted = [*refused, *(revert.not_reverted or [])] or None


def _undoing(session: Session, history: Sequence[MessageWithParts]) -> dict[Path, str]:
    """The files that the revert in force touched, each with the snapshot from just before it."""
    revert = session.revert
    if revert is None or revert.snapshot is None:
        return {}
    target = find_target(history, revert.message_id, revert.part_id)
    return dict.fromkeys(first_trees(target.undone), revert.snapshot) if target else {}


def _from_part(parts: Sequence[Part], part_id: str) -> Sequence[Part]:
    at = next((place for place, part in enumerate(parts) if part.id == part_id), len(parts))
    return parts[at:]


async def _diffs(snapshots: Snapshots | None, place: Place, undone: Sequence[MessageWithParts]) -> list[FileDiff]:
    """What the reverted messages had changed."""
    parts = list(_parts(undone))
    before = next((tree for part in parts if (tree := _tree_before(part))), None)
    after = next((part.snapshot for part in reversed(parts) if isinstance(part, StepFinishPart) and part.snapshot), None)
    if snapshots is None or before is None or after is None:
        return []
    touched = {relative(str(path), place.worktree) for path in first_trees(undone)}
    return [diff for diff in await snapshots.diff_full(before, after) if diff.file in touched]


def _tree_before(part: Part) -> str | None:
    """Reverted from the middle of a step, its patch tells the tree that it began with."""
    if isinstance(part, PatchPart):
        return part.hash
    return part.snapshot if isinstance(part, StepStartPart) else None


async def _would_change(snapshots: Snapshots, place: Place, now: str, trees: Mapping[Path, str]) -> list[FileDiff]:
    found: list[FileDiff] = []
    for tree in dict.fromkeys(trees.values()):
        names = {relative(str(path), place.worktree) for path, its_tree in trees.items() if its_tree == tree}
        found += [diff for diff in await snapshots.diff_full(now, tree) if diff.file in names]
    return sorted(found, key=lambda diff: diff.file)


def _unified(diff: FileDiff) -> str:
    lines = difflib.unified_diff(
        diff.before.splitlines(keepends=True), diff.after.splitlines(keepends=True), f"a/{diff.file}", f"b/{diff.file}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
