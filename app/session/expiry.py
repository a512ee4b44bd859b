"""Which sessions are old enough to be deleted, and what keeps one of them. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from app.schema.session import Session

KeptAs = Literal["shared", "pinned", "running"]


def expired_trees(ages: Iterable[Any], cutoff: int) -> list[list[str]]:
    """The ids of each root session and all below it, parents first, where none has changed since. `ages`: id, parent_id and
    updated of all sessions. One whose parent is gone is a root."""
    rows = {row.id: row for row in ages}
    children: dict[str, list[str]] = defaultdict(list)
    roots: list[str] = []
    for row in rows.values():
        (children[row.parent_id] if row.parent_id in rows else roots).append(row.id)
    trees = ([*_descent(root, children)] for root in roots)
    return [tree for tree in trees if all(rows[session_id].updated < cutoff for session_id in tree)]


def _descent(root: str, children: dict[str, list[str]]) -> Iterable[str]:
    generation = [root]
    while generation:
        yield from generation
        generation = [child for parent in generation for child in children.get(parent, ())]


def kept_as(tree: Iterable[Session]) -> KeptAs | None:
    """What keeps an old tree, None if nothing does. A revert that is under way is of a server that died: it is taken back."""
    for session in tree:
        if session.pinned:
            return "pinned"
        if session.share is not None:
            return "shared"
        if session.revert is not None and session.revert.unfinished:
            return "running"
    return None


def is_expired(tree: Sequence[Session], cutoff: int) -> bool:
    return all(session.time.updated < cutoff for session in tree)


def is_archived(root: Session) -> bool:
    return root.time.archived is not None
