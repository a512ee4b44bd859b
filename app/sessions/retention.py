"""Deletes old sessions: a tree (a root session with its descendants) in one transaction, then space is given back.

A tree in which a session runs, is shared or pinned is kept. Each deletion is announced and logged like any other.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from app.project.snapshot.maintenance import collect_repositories
from app.record.engine import Connection, Database
from app.record.repositories import session_rows, work_rows
from app.record.repositories.account_rows import DAY_MS
from app.schema.errors import NotFound, SessionBusy
from app.schema.session import PruneReport, Session
from app.sessions.live import LiveSessions, SessionWork, WorkKind
from app.sessions.service import SessionService
from app.sessions.store import Store
from app.util import clock

log = logging.getLogger(__name__)

KeptAs = Literal["shared", "pinned", "running"]


@dataclass(frozen=True, slots=True)
class PruneRule:
    """`cutoff`: sessions that have changed since, in epoch milliseconds, are kept."""

    cutoff: int
    archived_only: bool = False

    @classmethod
    def older_than(cls, days: float, *, archived_only: bool = False) -> "PruneRule":
        return cls(clock.now_ms() - int(days * DAY_MS), archived_only)

    def allows(self, tree: Sequence[Session]) -> bool:
        """`tree`: children before their parents."""
        is_wanted = is_archived(tree[-1]) or not self.archived_only
        return is_wanted and kept_as(tree) is None and all(session.time.updated < self.cutoff for session in tree)


@dataclass
class Retention:
    database: Database
    store: Store
    sessions: SessionService
    live: LiveSessions
    data_dir: Path
    on_deleted: Callable[[Session], None] = lambda _: None
    """Called with each session that was deleted, after the commit."""

    async def prune(self, rule: PruneRule, *, dry_run: bool = False) -> PruneReport:
        """Runs on one server of a database at a time. A tree that changes meanwhile, or in which work begins, is kept."""
        report, projects = PruneReport(), set[str]()
        async with self.database.locks.lock("prune sessions"):
            ages = await self.database.read(session_rows.session_ages)
            for session_ids in expired_trees(ages, rule.cutoff):
                tree = await self._read(session_ids)
                if not tree or (rule.archived_only and not is_archived(tree[-1])):
                    continue
                _count(report, await self._prune_tree(tree, rule, dry_run))
                projects.update(session.project_id for session in tree if not dry_run)
            if not dry_run:
                await self.database.give_back()
                await collect_repositories(self.data_dir, projects, self.database.locks)
        if report.trees and not dry_run:
            log.info("deleted %d old sessions in %d trees", report.sessions, report.trees)
        return report

    async def _read(self, session_ids: Sequence[str]) -> list[Session]:
        """A tree, children before their parents. Empty if it was deleted meanwhile, or has a damaged session."""
        found = await self.store.sessions(session_ids)
        return [found[each] for each in reversed(session_ids)] if all(each in found for each in session_ids) else []

    async def _prune_tree(self, tree: Sequence[Session], rule: PruneRule, dry_run: bool) -> KeptAs | int | None:
        """The number of deleted sessions, or the reason to keep the tree."""
        if kept := kept_as(tree):
            return kept
        held = await self.store.query(work_rows.held_among, [session.id for session in tree])
        if held or any(self.live.get(session.id).is_held for session in tree):
            return "running"
        if dry_run:
            return len(tree)
        try:
            return await self._delete(tree, rule)
        except SessionBusy:
            return "running"
        except NotFound:
            return None

    async def _delete(self, tree: Sequence[Session], rule: PruneRule) -> int | None:
        """None if the tree may not be deleted any more. Raises SessionBusy if work of this server runs on one of its sessions."""
        root, known = tree[-1], frozenset(session.id for session in tree)
        async with AsyncExitStack() as holds:
            for session in reversed(tree):
                live = self.live.get(session.id)
                if live.is_held:
                    raise SessionBusy(session.id)
                await holds.enter_async_context(live.exclusive(SessionWork(kind=WorkKind.DELETE, directory=session.directory)))
            check = partial(self._require_unused, cutoff=rule.cutoff, known=known)
            gone = await self.sessions.remove(root.directory, root.id, rule.allows, check)
        for session in gone:
            self.on_deleted(session)
        return len(gone) or None

    def _require_unused(self, connection: Connection, cutoff: int, known: frozenset[str]) -> None:
        """Runs in the transaction that deletes the sessions. Raises SessionBusy if one is used again, NotFound if one is gone."""
        rows = session_rows.lock_sessions(connection, known)
        if len(rows) < len(known):
            raise NotFound("Deleted meanwhile")
        if any(row.updated >= cutoff for row in rows) or not known.issuperset(session_rows.children_of(connection, known)):
            raise SessionBusy(rows[0].id)
        for row in rows:
            self.live.leases.require_free(connection, row.id)


def _count(report: PruneReport, outcome: KeptAs | int | None) -> None:
    """The reasons to keep a tree are names of the report's counts."""
    if isinstance(outcome, int):
        report.trees += 1
        report.sessions += outcome
    elif outcome is not None:
        setattr(report, outcome, getattr(report, outcome) + 1)


def expired_trees(ages: Iterable[Any], cutoff: int) -> list[list[str]]:
    """The ids of each tree in which no session has changed since `cutoff`, parents first. `ages`: id, parent_id and updated of
    all sessions. A session whose parent is gone is a root."""
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
    """The reason to keep an old tree, None if there is none. A revert that is under way is of a dead server: it is undone."""
    for session in tree:
        if session.pinned:
            return "pinned"
        if session.share is not None:
            return "shared"
        if session.revert is not None and session.revert.unfinished:
            return "running"
    return None


def is_archived(root: Session) -> bool:
    return bool(root.time.archived)  # 0: it was brought back
