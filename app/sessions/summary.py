"""What sums up a session: its title, and the diffs of it and its prompts, made of the snapshots of their steps. And the tasks
that make them in the background."""

import asyncio
import hashlib
import logging
import re
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import orjson

from app.project.location import Location
from app.record.engine import Connection
from app.record.repositories import message_rows
from app.record.tables import parsed
from app.record.writer import StaleLease
from app.schema.errors import NotFound
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage, UserSummary
from app.schema.part import PatchPart
from app.schema.session import FileDiff, Session, SessionSummary
from app.sessions.rows import json_array, message_row
from app.sessions.session_tx import SessionTx
from app.sessions.store import Store
from app.sessions.usage import StepUsage
from app.util import clock
from app.util.tasks import TaskSet

T = TypeVar("T")

# The titles of sessions that nobody has named.

_NEW, _CHILD = "New session - ", "Child session - "
_DEFAULT = re.compile(rf"({_NEW}|{_CHILD})\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z")


def default_title(*, child: bool) -> str:
    return (_CHILD if child else _NEW) + clock.iso_utc(clock.now_ms())


def is_default_title(title: str) -> bool:
    return _DEFAULT.fullmatch(title) is not None


# Background tasks that may outlive their turn: of sessions titles and diffs, of directories new worktrees.

log = logging.getLogger(__name__)


_PATCHES = "patches of "


class SessionTasks:
    """Owns the tasks until they are done, their session is deleted, or the server stops. Logs their errors."""

    def __init__(self) -> None:
        self._tasks: defaultdict[str, TaskSet] = defaultdict(TaskSet)

    def start(self, session_id: str, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks = self._tasks[session_id]
        task = tasks.start(logged(session_id, name, work), name)
        task.add_done_callback(lambda _: None if tasks else self._tasks.pop(session_id, None))
        task.add_done_callback(lambda _: work.close())  # for a task that is cancelled before it begins
        return task

    def start_patch(self, session_id: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """`work` stores the patch of an aborted step."""
        return self.start(_PATCHES + session_id, "patch", work)

    async def patches(self, session_id: str) -> None:
        """Returns when the patches of the session's aborted steps are stored."""
        await self._tasks.get(_PATCHES + session_id, TaskSet()).wait()

    async def cancel(self, session_id: str) -> None:
        """Cancels the session's tasks and waits for their end."""
        for key in (_PATCHES + session_id, session_id):
            await self._tasks.get(key, TaskSet()).cancel()

    async def finished(self) -> None:
        """Returns when all tasks of all sessions are done."""
        while self._tasks:
            await next(iter(self._tasks.values())).wait()

    async def close(self) -> None:
        """Cancels unfinished tasks. Their results are missing until the session's next turn."""
        await asyncio.gather(*(tasks.cancel() for tasks in self._tasks.values()))


async def logged(session_id: str, name: str, work: Coroutine[Any, Any, T]) -> T | None:
    """Logs an error, which must not end a turn."""
    try:
        return await work
    except (NotFound, StaleLease) as gone:
        log.debug("the %s of %s is dropped: %s", name, session_id, gone)
    except Exception:
        log.exception("the %s of %s could not be brought up to date", name, session_id)
    return None


Diffs = list[FileDiff] | None
"""None: unchanged, or not known."""


class TreeDiffs(Protocol):
    async def diff_full(self, a: str, b: str) -> Diffs: ...


@dataclass(frozen=True, slots=True)
class _TreeSpan:
    """The tree before the first step and the tree after the last one; None without snapshots."""

    before: str | None
    after: str | None

    def __str__(self) -> str:
        """Empty if nothing changed."""
        return f"{self.before}..{self.after}" if self.before and self.after and self.before != self.after else ""


@dataclass(frozen=True, slots=True)
class _DiffBasis:
    """What the stored diffs were computed from, and the digest of the session's diff. `session`: its trees and patches, one tree
    if nothing changed. `prompt`: the id of the newest prompt with a diff, and its trees. An empty text means an empty diff, None
    that no diff is stored."""

    session: str | None = None
    prompt: str = ""
    digest: str | None = None

    @classmethod
    def read(cls, stored: str | None) -> "_DiffBasis":
        return cls(*orjson.loads(stored)) if stored else cls()

    def json(self) -> str:
        return orjson.dumps([self.session, self.prompt, self.digest]).decode()


@dataclass(frozen=True, slots=True)
class _DiffInputs:
    """`current`: the present basis of the diffs, with the digest of the stored diff. `touched`: the files in patches."""

    stored: _DiffBasis
    current: _DiffBasis
    session: _TreeSpan
    prompt: _TreeSpan
    touched: set[str]

    def basis(self, of_session: "Diffs", of_prompt: "Diffs", digest: str | None) -> _DiffBasis:
        """Of the diffs that are stored now: those that are not known are asked for again."""
        session, prompt = (self.stored if diffs is None else self.current for diffs in (of_session, of_prompt))
        return _DiffBasis(session.session, prompt.prompt, digest)


class Summaries:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._updating: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def update(self, location: Location, trees: TreeDiffs | None, session_id: str, prompt_id: str) -> int:
        """Stores and announces the session's diff and counts, and the prompt's diffs, as far as they differ from the stored ones.

        Returns the number of bytes announced. Needs one small read if no tree changed since the last update. A slow update does
        not overwrite newer data: updates of one session run one after another, and a diff that a revert stored meanwhile stays.
        Raises NotFound if the session or the prompt is deleted."""
        async with self._updating.setdefault(session_id, asyncio.Lock()):
            inputs = await self._store.query(_read_inputs, session_id, prompt_id)
            if inputs.current == inputs.stored or (trees is None and str(inputs.session)):
                return 0
            of_session, of_prompt = await _compute(trees, inputs, location)

            def put(tx: SessionTx) -> int:
                session, prompt, basis = tx.session_and_prompt(prompt_id)
                if session.revert is not None or _DiffBasis.read(basis) != inputs.stored:
                    log.debug("a newer diff of %s was stored meanwhile", session_id)
                    return 0
                digest = _put_session_diff(tx, session, of_session, inputs.stored.digest)
                if of_prompt is not None and of_prompt != (prompt.summary.diffs if prompt.summary else []):
                    _summary_of(prompt).diffs = of_prompt
                    tx.put_message(message_row(prompt))
                tx.put_diff_basis(inputs.basis(of_session, of_prompt, digest).json())
                return sum(len(event.payload) for event in tx.tx.events)

            return await self._store.write(session_id, location.directory, put)

    async def put_empty(self, location: Location, session_id: str, tree: str | None) -> str:
        """Stores and announces the first diff of a session, whose only step left `tree` unchanged. Returns the diff's basis."""
        basis = _DiffBasis(tree or "", "", "").json()

        def put(tx: SessionTx) -> None:
            _put_totals(tx, tx.session(), [])
            tx.announce_diff(b"[]")
            tx.put_diff_basis(basis)

        await self._store.write(session_id, location.directory, put)
        return basis

    async def set_title(self, location: Location, session_id: str, prompt_id: str, title: str, usage: StepUsage) -> None:
        """Sets the title of a session that has its default title, and of its first prompt's summary; counts the title's usage.
        Raises NotFound if the session or the prompt is deleted."""

        def put(tx: SessionTx) -> None:
            session, prompt, _ = tx.session_and_prompt(prompt_id)
            if is_default_title(session.title):
                session.title = title
                tx.update(session)
            _summary_of(prompt).title = title
            tx.put_message(message_row(prompt))
            tx.add_usage(usage)

        await self._store.write(session_id, location.directory, put)


def _put_session_diff(tx: SessionTx, session: Session, diffs: Diffs, stored: str | None) -> str | None:
    """Returns the digest of the session's diff. `stored`: the digest of the stored one."""
    if diffs is None:
        return stored
    _put_totals(tx, session, diffs)
    body = json_array([diff.wire_json() for diff in diffs])
    digest = hashlib.sha256(body).hexdigest() if diffs else ""
    if digest != stored:
        tx.put_diff_json(body)
    return digest


def _put_totals(tx: SessionTx, session: Session, diffs: Sequence[FileDiff]) -> None:
    """Changes `session`."""
    summary = totals(diffs)
    if session.summary != summary:
        session.summary, session.time.updated = summary, clock.now_ms()
        tx.update(session)


def _summary_of(prompt: UserMessage) -> UserSummary:
    """The prompt's summary; an empty one is added to a prompt without any."""
    prompt.summary = prompt.summary or UserSummary(diffs=[])
    return prompt.summary


def totals(diffs: Sequence[FileDiff]) -> SessionSummary:
    return SessionSummary(
        additions=sum(diff.additions for diff in diffs), deletions=sum(diff.deletions for diff in diffs), files=len(diffs)
    )


async def _compute(trees: TreeDiffs | None, inputs: _DiffInputs, location: Location) -> tuple[Diffs, Diffs]:
    """The diffs of the session and of the prompt, if their basis changed. A first prompt and its session have the same trees."""
    prompt = await _between(trees, inputs.prompt) if inputs.current.prompt != inputs.stored.prompt else None
    if inputs.current.session == inputs.stored.session:
        return None, prompt
    session = prompt if prompt is not None and inputs.prompt == inputs.session else await _between(trees, inputs.session)
    touched = {relative(file, location.files_root) for file in inputs.touched}
    return session and [diff for diff in session if diff.file in touched], prompt


async def _between(trees: TreeDiffs | None, span: _TreeSpan) -> Diffs:
    return await trees.diff_full(span.before, span.after) if trees and span.before and span.after and str(span) else []


def _read_inputs(connection: Connection, session_id: str, prompt_id: str) -> _DiffInputs:
    stored_basis, *edges = message_rows.edge_snapshots(connection, session_id, prompt_id)
    stored, session, prompt = _DiffBasis.read(stored_basis), _TreeSpan(*edges[:2]), _TreeSpan(*edges[2:])
    basis = f"{session} {message_rows.patches_version(connection, session_id)}" if str(session) else session.after or ""
    current = _DiffBasis(basis, _prompt_basis(stored, prompt_id, prompt), stored.digest)
    touched: set[str] = set()
    if str(session) and basis != stored.session:
        for row in message_rows.patches(connection, session_id):
            touched.update((parsed(row.body) or {}).get("files", ()))
    return _DiffInputs(stored, current, session, prompt, touched)


def covers_tree(diff_basis: str | None, tree: str | None) -> bool:
    """Whether the stored diffs were computed when `tree` was what the session's newest step had left."""
    session = _DiffBasis.read(diff_basis).session
    return session is not None and (session == (tree or "") or f"..{tree} " in session)


def _prompt_basis(stored: _DiffBasis, prompt_id: str, trees: _TreeSpan) -> str:
    """A prompt without changes keeps the basis of an earlier prompt."""
    if str(trees):
        return f"{prompt_id} {trees}"
    return "" if stored.prompt.startswith(f"{prompt_id} ") else stored.prompt


def relative(file: str, worktree: str) -> str:
    path = Path(file)
    return str(path.relative_to(worktree)) if path.is_relative_to(worktree) else file


# The diffs during a turn: what each step changed is announced as the turn goes on.

MIN_PAUSE_SECONDS = 1.0
BYTES_PER_SECOND = 200_000
"""Limits the announced bytes, because each update announces the session's whole diff."""

StepTrees = tuple[str | None, str | None]
"""The worktree's snapshots before and after a step; None for a missing one."""


@dataclass(eq=False)
class TurnDiffs:
    """One update runs at a time, in a task that may outlive the turn. Requests during an update, or during the pause after it,
    share the next one. `basis`: the stored diffs' basis, as the newest step found it."""

    _summaries: Summaries
    _tasks: SessionTasks
    _location: Location
    _trees: TreeDiffs | None
    _session_id: str
    _requested: dict[str, None] = field(default_factory=dict)
    _finishing: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    basis: str | None = None

    async def begin(self, trees: StepTrees) -> None:
        """To be called when the session's first step closes: if it changed nothing, the commit of its end has an empty diff."""
        before, after = trees
        if before == after:
            put = self._summaries.put_empty(self._location, self._session_id, after)
            self.basis = await logged(self._session_id, "diff", put)

    def request(self, prompt_id: str, trees: StepTrees | None = None) -> None:
        """To be called at the end of a step of the prompt, with the step's trees if they are known. Returns at once. Starts no
        update if the stored diffs have all that the step changed."""
        if trees is not None and trees[0] == trees[1] and covers_tree(self.basis, trees[1]):
            return
        self._requested[prompt_id] = None
        if self._task is None or self._task.done():
            self._task = self._tasks.start(self._session_id, "diff", self._run())

    def finish(self) -> asyncio.Task[None] | None:
        """Ends the pauses. Returns the task that ends when all requested diffs are stored; None without a request."""
        self._finishing.set()
        return self._task

    async def _run(self) -> None:
        while self._requested:
            requested, self._requested = self._requested, {}
            sent = 0
            for prompt_id in requested:
                update = self._summaries.update(self._location, self._trees, self._session_id, prompt_id)
                sent += await logged(self._session_id, "diff", update) or 0
            if sent:
                await self._pause(max(MIN_PAUSE_SECONDS, sent / BYTES_PER_SECOND))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._finishing.wait()


def prompt_without_diffs(history: Sequence[MessageWithParts], prompt_id: str) -> str | None:
    """The previous prompt if its turn changed files and its diffs are missing, because its server was killed."""
    changed = False
    for message in reversed(history):
        if isinstance(message.info, AssistantMessage):
            changed = changed or (
                message.info.parent_id != prompt_id and any(isinstance(part, PatchPart) for part in message.parts)
            )
        elif message.info.id != prompt_id:
            has_diffs = message.info.summary is not None and bool(message.info.summary.diffs)
            return message.info.id if changed and not has_diffs else None
    return None
