"""What a session and a prompt have changed, from the snapshots of their steps (behaviour §2.9)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from app.schema.message import MessageWithParts, UserMessage, UserSummary
from app.schema.session import FileDiff, SessionSummary
from app.session.store import Store
from app.session.title import is_default
from app.storage import queries
from app.storage.bodies import is_sound
from app.storage.engine import Connection
from app.util import clock
from app.workspace.place import Place


class TreeDiffs(Protocol):
    async def diff_full(self, a: str, b: str) -> list[FileDiff]: ...


@dataclass(frozen=True, slots=True)
class _Trees:
    """The tree before the first step and after the last one; None without snapshots."""

    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class _Facts:
    session: _Trees
    prompt: _Trees
    touched: set[str]


class Summaries:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def update(self, place: Place, trees: TreeDiffs | None, session_id: str, prompt_id: str) -> None:
        """Store and announce the session's diff and counts, and the prompt's diffs."""
        facts = await self._store.ask(_facts, session_id, prompt_id)
        touched = {relative(file, place.worktree) for file in facts.touched}
        of_session = [diff for diff in await _between(trees, facts.session) if diff.file in touched]
        of_prompt = of_session if facts.prompt == facts.session else await _between(trees, facts.prompt)
        async with self._store.lock(session_id):
            session, prompt = await self._store.session_and_message(session_id, prompt_id)
            change = self._store.change(session_id, place.directory)
            time = session.time.model_copy(update={"updated": clock.now_ms()})
            change.update_session(session.model_copy(update={"summary": totals(of_session), "time": time}))
            change.put_diff(of_session)
            change.put_message(_summarised(prompt, {"diffs": of_prompt}))
            await self._store.commit(change)

    async def set_title(self, place: Place, session_id: str, prompt_id: str, title: str) -> None:
        """Name a session that has its default title, and its first prompt's summary."""
        async with self._store.lock(session_id):
            session, prompt = await self._store.session_and_message(session_id, prompt_id)
            change = self._store.change(session_id, place.directory)
            if is_default(session.title):
                change.update_session(session.model_copy(update={"title": title}))
            change.put_message(_summarised(prompt, {"title": title}))
            await self._store.commit(change)


def _summarised(prompt: MessageWithParts, update: dict[str, Any]) -> UserMessage:
    assert isinstance(prompt.info, UserMessage)
    summary = (prompt.info.summary or UserSummary(diffs=[])).model_copy(update=update)
    return prompt.info.model_copy(update={"summary": summary})


def totals(diffs: Sequence[FileDiff]) -> SessionSummary:
    return SessionSummary(
        additions=sum(diff.additions for diff in diffs), deletions=sum(diff.deletions for diff in diffs), files=len(diffs)
    )


async def _between(trees: TreeDiffs | None, span: _Trees) -> list[FileDiff]:
    if trees is None or span.before is None or span.after is None or span.before == span.after:
        return []
    return await trees.diff_full(span.before, span.after)


def _facts(connection: Connection, session_id: str, prompt_id: str) -> _Facts:
    patches = queries.parts_of_type(connection, session_id, "patch")
    return _Facts(
        session=_trees(connection, session_id, None),
        prompt=_trees(connection, session_id, prompt_id),
        touched={file for row in patches if is_sound(row.body) for file in orjson.loads(row.body).get("files", ())},
    )


def _trees(connection: Connection, session_id: str, prompt_id: str | None) -> _Trees:
    before = queries.edge_snapshot(connection, session_id, "step-start", prompt_id, last=False)
    after = queries.edge_snapshot(connection, session_id, "step-finish", prompt_id, last=True)
    return _Trees(_snapshot(before), _snapshot(after))


def _snapshot(body: str | None) -> str | None:
    return orjson.loads(body).get("snapshot") if is_sound(body) and body is not None else None


def relative(file: str, worktree: str) -> str:
    path = Path(file)
    return str(path.relative_to(worktree)) if path.is_relative_to(worktree) else file
