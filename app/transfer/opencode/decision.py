"""Decides what becomes of each session of the source. Pure."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from app.schema.part import PatchPart, SnapshotPart, StepFinishPart, StepStartPart
from app.transfer.document import SessionHistory
from app.transfer.opencode.records import SourceSession
from app.transfer.opencode.report import ImportOutcome

_PLACED_HERE = {"project_id", "owner", "share", "path", "cost", "tokens"}
"""Differ between the source and here without anybody changing the session."""


def decide(source: str, imported: str | None, stored: str | None) -> ImportOutcome:
    """By the fingerprints of a session: in the source, as it was imported last, and as it is stored here."""
    if imported is None:
        if stored is None:
            return ImportOutcome.IMPORTED
        return ImportOutcome.UNCHANGED if stored == source else ImportOutcome.EXISTS
    if stored is None:
        return ImportOutcome.DELETED_HERE
    if imported == source:  # it may have changed here
        return ImportOutcome.UNCHANGED
    return ImportOutcome.UPDATED if stored in (imported, source) else ImportOutcome.CHANGED_HERE


def fingerprint(history: SessionHistory) -> str:
    """A hash of the content: whether a session changed since it was imported."""
    digest = hashlib.sha256(history.info.model_dump_json(exclude=_PLACED_HERE, exclude_none=True).encode())
    for value in (*history.messages, *history.todo, *history.diff):
        digest.update(b"\n" + value.wire_json())
    return digest.hexdigest()


def in_order(sessions: Iterable[SourceSession]) -> list[SourceSession]:
    """Oldest first: lists show what was stored last first."""
    return sorted(sessions, key=lambda session: session.created)


def is_in(directory: Path, session: SourceSession) -> bool:
    named = session.info.get("directory")
    return isinstance(named, str) and any(Path(named).is_relative_to(each) for each in (directory, directory.resolve()))


def trees_of(history: SessionHistory) -> set[str]:
    """The snapshots that a revert of the session, or its diff, needs."""
    trees = {history.info.revert.snapshot} if history.info.revert else set()
    for message in history.messages:
        for part in message.parts:
            if isinstance(part, StepStartPart | StepFinishPart | SnapshotPart):
                trees.add(part.snapshot)
            elif isinstance(part, PatchPart):
                trees.add(part.hash)
    return {tree for tree in trees if tree}
