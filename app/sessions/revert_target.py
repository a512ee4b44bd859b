"""The target of a revert and the messages that it reverts. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.project.snapshot.trees import unquoted
from app.schema.message import MessageWithParts, UserMessage
from app.schema.part import Completed, Failed, Part, PatchPart, StepFinishPart, StepStartPart, TextPart, ToolPart
from app.schema.permission import EDITING_TOOLS
from app.schema.session import NotReverted, Revert, RevertedFile, RevertState

NO_SNAPSHOT = "there is no snapshot of this step"
_RUNNING_ANYTHING = ("bash", "task")
"""Tools that may have changed any file, even if they failed or were aborted."""


@dataclass(frozen=True, slots=True)
class RevertTarget:
    """The session returns to its state before a message, or before a part of the message."""

    message_id: str
    part_id: str | None
    kept: Sequence[Part]
    """The parts before the target part in its message."""
    undone: Sequence[MessageWithParts]
    """The reverted messages; the first one contains only the parts from the target part on."""

    def parts(self) -> list[Part]:
        return [part for message in self.undone for part in message.parts]


def find_target(history: Sequence[MessageWithParts], message_id: str, part_id: str | None) -> RevertTarget | None:
    """None if nothing has that id. A part is the target only if text or a tool call precedes it in its message. Otherwise, and
    for a whole answer, the target is its prompt."""
    prompt_at: int | None = None
    for at, message in enumerate(history):
        if isinstance(message.info, UserMessage):
            prompt_at = at
        position = _position_of(message, message_id, part_id)
        if position is None:
            continue
        kept = message.parts[:position]
        if part_id is not None and any(isinstance(part, TextPart | ToolPart) for part in kept):
            rest = MessageWithParts.model_construct(info=message.info, parts=message.parts[position:])
            return RevertTarget(message.info.id, part_id, kept, [rest, *history[at + 1 :]])
        start = at if prompt_at is None else prompt_at
        return RevertTarget(history[start].info.id, None, [], list(history[start:]))
    return None


def _position_of(message: MessageWithParts, message_id: str, part_id: str | None) -> int | None:
    if part_id is None:
        return 0 if message.info.id == message_id else None
    return next((position for position, part in enumerate(message.parts) if part.id == part_id), None)


def first_trees(target: RevertTarget) -> dict[Path, str]:
    """For each changed file, the snapshot from before its first change."""
    trees: dict[Path, str] = {}
    for part in target.parts():
        if isinstance(part, PatchPart):
            for file in part.files:
                trees.setdefault(Path(file), part.hash)
    return trees


def outer_trees(target: RevertTarget) -> tuple[str, str] | None:
    """The snapshots before the first change and after the last step; None if one is missing."""
    parts = target.parts()
    before = next((tree for part in parts if (tree := _tree_before(part))), None)
    after = next((part.snapshot for part in reversed(parts) if isinstance(part, StepFinishPart) and part.snapshot), None)
    return (before, after) if before and after else None


def _tree_before(part: Part) -> str | None:
    """For a revert from the middle of a step, the step's patch has the tree that the step began with."""
    if isinstance(part, PatchPart):
        return part.hash
    return part.snapshot if isinstance(part, StepStartPart) else None


def reported_edits(target: RevertTarget) -> dict[str, str]:
    """The files that editing tools report as changed, by their reported names, each with the snapshot before the first such
    step."""
    found: dict[str, str] = {}
    for step, undone in _steps(target):
        tree = next((tree for part in step if (tree := _tree_before(part))), None)
        if tree is not None:
            found = {file: tree for part in undone for file in _edited_files(part)} | found
    return found


def unknown_changes(target: RevertTarget) -> list[NotReverted]:
    """Files (or tools, where the files are unknown) that steps without a snapshot changed or may have changed."""
    snapshots_work = any(isinstance(part, StepStartPart) and part.snapshot for part in target.parts())
    found: dict[str, None] = {}
    for step, undone in _steps(target):
        if not _is_known(step, snapshots_work):
            found.update(dict.fromkeys(name for part in undone for name in _may_have_changed(part)))
    return [NotReverted(file=name, reason=NO_SNAPSHOT) for name in found]


def _steps(target: RevertTarget) -> Iterable[tuple[Sequence[Part], Sequence[Part]]]:
    """For each message, all its parts, and the reverted ones."""
    kept = target.kept
    for message in target.undone:
        yield [*kept, *message.parts], message.parts
        kept = []


def _is_known(step: Sequence[Part], snapshots_work: bool) -> bool:
    """Whether the step's changes are known: it has a patch, or equal snapshots and therefore no change.

    The call of a subtask is in a message without step parts; its changes are known if the snapshots of other steps work.
    """
    if any(isinstance(part, PatchPart) for part in step):
        return True
    trees = {part.snapshot for part in step if isinstance(part, StepStartPart | StepFinishPart)}
    if not trees:
        return snapshots_work and not any(isinstance(part, ToolPart) and part.tool == "bash" for part in step)
    return None not in trees and len(trees) == 1


def _may_have_changed(part: Part) -> Sequence[str]:
    if isinstance(part, ToolPart) and part.tool in _RUNNING_ANYTHING:
        return [part.tool] if isinstance(part.state, Completed | Failed) else []
    return _edited_files(part)


def _edited_files(part: Part) -> Sequence[str]:
    if not isinstance(part, ToolPart) or part.tool not in EDITING_TOOLS or not isinstance(part.state, Completed):
        return []
    if file := part.state.input.get("filePath"):
        return [str(file)]
    changed = part.state.metadata.get("files")
    entries = [entry for entry in changed if isinstance(entry, dict)] if isinstance(changed, list) else []
    return [str(entry[key]) for entry in entries for key in ("filePath", "movePath") if entry.get(key)]


# The files that a revert changes, as the second API has them. Pure.

MAX_FILES = 1000
_FILE = re.compile(r"^(?=diff --git )", re.MULTILINE)
_RENAMED = re.compile(r"^rename to (.+)$", re.MULTILINE)


def revert_state(revert: Revert) -> RevertState:
    diff = revert.diff or ""
    return RevertState(
        message_id=revert.message_id,
        part_id=revert.part_id,
        snapshot=revert.snapshot,
        diff=diff,
        files=[_file(patch) for patch in _FILE.split(diff, MAX_FILES + 1)[: MAX_FILES + 1] if patch.startswith("diff --git ")],
    )


def _file(patch: str) -> RevertedFile:
    head, _, body = patch.partition("\n@@ ")
    return RevertedFile(
        path=_name_in(head),
        status=_status_in(head),
        additions=body.count("\n+"),
        deletions=body.count("\n-"),
        patch=patch if patch.endswith("\n") else f"{patch}\n",
    )


def _name_in(head: str) -> str:
    """The file's name in the lines before a patch's first hunk."""
    if renamed := _RENAMED.search(head):
        return _plain(renamed[1])
    # Without a rename the first line has the same name twice: `diff --git a/NAME b/NAME`.
    names = head.partition("\n")[0].removeprefix("diff --git ")
    return _plain(names[len(names) // 2 + 1 :]).removeprefix("b/")


def _status_in(head: str) -> Literal["added", "deleted", "modified"]:
    if "\nnew file mode" in head:
        return "added"
    return "deleted" if "\ndeleted file mode" in head else "modified"


def _plain(name: str) -> str:
    return unquoted(name.encode()).decode("utf-8", "replace")
