"""Deletes old sessions: a root session with all below it in one transaction, then the space is given back.

A tree stays while anything runs in it, and where it is shared or pinned. Its deletion is announced and logged like any other.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from app.schema.errors import NotFound, SessionBusy
from app.schema.retention import PruneReport
from app.schema.session import Session
from app.session.live import LiveSessions, SessionWork, WorkKind
from app.session.service import SessionService
from app.session.store import Store
from app.snapshot.maintenance import collect_repositories
from app.storage.engine import Connection, Database
from app.storage.repositories import lease_rows, session_rows
from app.util import clock

log = logging.getLogger(__name__)

BATCH = 4
"""How many trees are deleted at once: their transactions are grouped, and what others write waits for the group."""
REST = 2.0
"""How long a server rests after a batch, in the time that the batch took: others have the writer to themselves meanwhile."""
DAY_MS = 86_400_000

KeptAs = Literal["shared", "pinned", "running"]


@dataclass(frozen=True, slots=True)
class PruneRule:
    """`cutoff`: what has changed since, in epoch milliseconds, stays."""

    cutoff: int
    archived_only: bool = False

    @classmethod
    def older_than(cls, days: float, *, archived_only: bool = False) -> "PruneRule":
        return cls(clock.now_ms() - int(days * DAY_MS), archived_only)

    def allows(self, tree: Sequence[Session]) -> bool:
        """Children before their parents."""
        is_wanted = is_archived(tree[-1]) or not self.archived_only
        return is_wanted and is_expired(tree, self.cutoff) and kept_as(tree) is None


class Retention:
    def __init__(
        self,
        database: Database,
        store: Store,
        sessions: SessionService,
        live: LiveSessions,
        data_dir: Path,
        rest: float = REST,
    ) -> None:
        """`rest`: 0 where nobody else uses the database."""
        self._database = database
        self._store = store
        self._sessions = sessions
        self._live = live
        self._data_dir = data_dir
        self.rest = rest
        self.on_deleted: Callable[[Session], None] = lambda _: None
        """Called with each session that was deleted, after the commit."""

    async def prune(self, rule: PruneRule, *, dry_run: bool = False) -> PruneReport:
        """One server of a database at a time. A tree that changes, or in which something begins, meanwhile stays."""
        report, projects = PruneReport(), set[str]()
        async with self._database.locks.lock("prune sessions"):
            ages = await self._database.read(session_rows.session_ages)
            old = expired_trees(ages, rule.cutoff)
            for batch in (old[start : start + BATCH] for start in range(0, len(old), BATCH)):
                began = time.monotonic()
                trees = [tree for tree in await self._read(batch) if is_archived(tree[-1]) or not rule.archived_only]
                for tree, outcome in zip(trees, await self._prune_some(trees, rule, dry_run), strict=True):
                    _count(report, outcome)
                    projects.update(session.project_id for session in tree if not dry_run)
                await asyncio.sleep(0 if dry_run else self.rest * (time.monotonic() - began))
            if not dry_run:
                await self._database.give_back()
                await collect_repositories(self._data_dir, projects, self._database.locks)
        if report.trees and not dry_run:
            log.info("deleted %d old sessions in %d trees", report.sessions, report.trees)
        return report

    async def _read(self, trees: Sequence[Sequence[str]]) -> list[list[Session]]:
        """Children before their parents. Without trees that are deleted meanwhile, and those with a damaged session."""
        found = await self._store.sessions([session_id for tree in trees for session_id in tree])
        return [[found[each] for each in reversed(tree)] for tree in trees if all(each in found for each in tree)]

    async def _prune_some(self, trees: Sequence[Sequence[Session]], rule: PruneRule, dry_run: bool) -> list[KeptAs | int | None]:
        """Of each tree how many sessions were deleted, or what keeps it."""
        held = frozenset(await self._store.query(lease_rows.held_among, [session.id for tree in trees for session in tree]))
        return list(await asyncio.gather(*(self._prune_tree(tree, rule, held, dry_run) for tree in trees)))

    async def _prune_tree(
        self, tree: Sequence[Session], rule: PruneRule, held: frozenset[str], dry_run: bool
    ) -> KeptAs | int | None:
        if kept := kept_as(tree):
            return kept
        if any(self._live.get(session.id).is_held or session.id in held for session in tree):
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
        """None if it may not be deleted any more."""
        root, known = tree[-1], frozenset(session.id for session in tree)
        async with AsyncExitStack() as holds:
            for session in reversed(tree):
                await holds.enter_async_context(self._alone(session))
            check = partial(self._require_unused, cutoff=rule.cutoff, known=known)
            gone = await self._sessions.remove(root.directory, root.id, rule.allows, check)
        for session in gone:
            self.on_deleted(session)
        return len(gone) or None

    @asynccontextmanager
    async def _alone(self, session: Session) -> AsyncIterator[None]:
        """Nothing works on the session here, or begins to. Raises SessionBusy."""
        live = self._live.get(session.id)
        if live.is_held:
            raise SessionBusy(session.id)
        async with live.exclusive(SessionWork(kind=WorkKind.DELETE, directory=session.directory)):
            yield

    def _require_unused(self, connection: Connection, cutoff: int, known: frozenset[str]) -> None:
        """By other servers, in the transaction that deletes them. Raises SessionBusy, and NotFound if another deleted them."""
        rows = session_rows.lock_sessions(connection, known)
        if len(rows) < len(known):
            raise NotFound("Deleted meanwhile")
        if any(row.updated >= cutoff for row in rows) or not known.issuperset(session_rows.children_of(connection, known)):
            raise SessionBusy(rows[0].id)
        for row in rows:
            self._live.leases.require_free(connection, row.id)


def _count(report: PruneReport, outcome: KeptAs | int | None) -> None:
    match outcome:
        case int(deleted):
            report.trees += 1
            report.sessions += deleted
        case "running":
            report.running += 1
        case "shared":
            report.shared += 1
        case "pinned":
            report.pinned += 1


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
