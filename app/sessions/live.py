"""The works on each session of this server: one object a session, which is forgotten when no work is left.

Two things decide what waits, what is refused and what goes on side by side (docs/concurrency.md):

- `LiveSession.messages`, a lock: held while a prompt is stored, a message is edited or a fork is read, and throughout a revert,
  the request for a summary and a deletion.
- `LiveSession.works`: turns, shell lines and other work that lasts. The first one works, the others wait. While there is one,
  edits and everything that needs the session alone are refused.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from pydantic import TypeAdapter

from app.record.engine import StorageError
from app.record.repositories import message_rows, work_rows
from app.record.repositories.message_rows import StoredMessages
from app.schema.errors import SessionBusy
from app.schema.event import EventSessionIdle, EventSessionStatus, OfSession, StatusOfSession
from app.schema.session import Busy, Idle, Retry, Session, SessionStatus
from app.sessions.lease import POLL_SECONDS, Leases
from app.sessions.session_tx import SessionTx
from app.sessions.store import Store
from app.util.tasks import TaskSet, every

# How a session is shown while something works on it: in its events, and to clients of other servers.

_STATUS: TypeAdapter[SessionStatus] = TypeAdapter(SessionStatus)
SHOWN_FOR_MS = 60_000
"""A session whose server is dead stays busy for so long, or until another server has taken it over."""


class EndOfRun(NamedTuple):
    """`waiting`: the prompt that keeps the session from being idle; `answer`: the session's newest, if it was looked for."""

    waiting: str | None = None
    answer: StoredMessages | None = None


def end_of_run(tx: SessionTx, joins: bool, tried_prompt: str | None) -> EndOfRun:
    """Announces that the session is idle. With `joins` it is not if a prompt waits for an answer, except `tried_prompt`."""
    end = EndOfRun()
    if joins:
        waiting = message_rows.unanswered_prompt(tx.connection, tx.session_id)
        answer = message_rows.newest_answer(tx.connection, tx.session_id)
        end = EndOfRun(None if waiting == tried_prompt else waiting, answer)
    if end.waiting is None:
        tx.close_prompts()
        announce_status(tx, Idle())
    return end


def announce_status(tx: SessionTx, status: SessionStatus) -> None:
    tx.announce(EventSessionStatus(properties=StatusOfSession(session_id=tx.session_id, status=status)))
    if isinstance(status, Idle):
        tx.announce(EventSessionIdle(properties=OfSession(session_id=tx.session_id)))


def compacting(session: Session, since: int | None) -> Session:
    """A copy of the session with `time.compacting` set, or removed for None."""
    return session.model_copy(update={"time": session.time.model_copy(update={"compacting": since})})


log = logging.getLogger(__name__)


class WorkKind(Enum):
    TURN = auto()
    SHELL = auto()
    REVERT = auto()
    """A revert or an unrevert. It runs to its end even if it is aborted: files that were restored without a record could not be
    put back."""
    SUMMARY = auto()
    """The request for a summary, until its turn has begun."""
    CLOSE = auto()
    """Storing an error as the answer to a prompt that cannot be run."""
    DELETE = auto()


@dataclass(eq=False, kw_only=True)
class SessionWork:
    """A work on a session, from the request for it to its end. `task`: what an abort cancels, if it may."""

    kind: WorkKind
    directory: str
    task: asyncio.Task[Any] | None = None
    has_begun: bool = False
    is_ending: bool = False
    """No prompt joins the work any more, and it is not cancelled."""
    is_aborted: bool = False
    is_fenced: bool = False
    """Another server may go on with the work: nothing more is to be written."""
    is_discarded: bool = False
    """The session is deleted, or another server has done the work."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def abort(self) -> None:
        """Cancels once: a second cancellation would interrupt the storing after the first. Cancels no ending work, nor one
        that has not begun: its task would not run at all, or store its end while the work before it still writes."""
        if self.task is None or self.is_aborted:
            return
        if self.has_begun and not self.is_ending and self.kind is not WorkKind.REVERT:
            self.task.cancel()
        self.is_aborted = self.is_ending = True


class LiveSession:
    """`status` and `directory`: as clients see them. `unstored_end`: the directory of a turn whose end could not be stored, which
    `closing` tries again. `has_queue`: prompts may wait for a turn of their own, which `queue_worker` begins."""

    def __init__(self, sessions: "LiveSessions", session_id: str) -> None:
        self.id = session_id
        self.messages = asyncio.Lock()
        self.works: list[SessionWork] = []
        self.status: Busy | Retry | None = None
        self.directory = ""
        self.unstored_end: str | None = None
        self.closing: asyncio.Task[None] | None = None
        self.queue_worker: asyncio.Task[None] | None = None
        self.has_queue = False
        self._sessions = sessions

    @property
    def is_unfinished(self) -> bool:
        """Whether anything works on the session, or its last turn's end is still to be stored."""
        return bool(self.works) or self.unstored_end is not None

    @property
    def is_held(self) -> bool:
        """Whether any request works on the session or waits to work on it."""
        return bool(self.works) or self.messages.locked()

    def require_idle(self) -> None:
        """Raises SessionBusy."""
        if self.works:
            raise SessionBusy(self.id)

    @asynccontextmanager
    async def editing(self) -> AsyncIterator[None]:
        """For one change of stored values. A prompt that is being stored comes first, and its turn refuses the change. Raises
        SessionBusy."""
        self.require_idle()
        async with self.messages:
            self.require_idle()
            yield

    @asynccontextmanager
    async def exclusive(self, work: SessionWork) -> AsyncIterator[None]:
        """For work that needs the session idle and keeps others out meanwhile. Only beside a shell line are prompts still stored.
        Raises SessionBusy."""
        async with AsyncExitStack() as messages:
            await messages.enter_async_context(self.editing())
            self.begin(work)
            work.has_begun = True
            if work.kind is WorkKind.SHELL:
                await messages.aclose()
            try:
                yield
            finally:
                self.end(work)

    def begin(self, work: SessionWork) -> None:
        """The work waits until it is the first one: see `first`."""
        self.works.append(work)
        self.remember_while_busy()

    async def first(self, work: SessionWork) -> None:
        """Returns when all works before this one have ended."""
        while self.works[0] is not work:
            await self.works[0].ended.wait()

    def end(self, work: SessionWork) -> None:
        self.works.remove(work)
        self.remember_while_busy()
        work.ended.set()

    async def idle(self) -> None:
        """Returns when nothing works on the session here."""
        while self.works:
            await self.works[-1].ended.wait()

    def remember_while_busy(self) -> None:
        """Call it when anything may have begun or ended that is to be remembered of the session."""
        is_idle = not self.works and self.status is None and self.unstored_end is None
        if is_idle and self.closing is None and self.queue_worker is None:
            self._sessions.at_work.pop(self.id, None)
        else:
            self._sessions.at_work[self.id] = self

    def discard(self) -> None:
        """The session is deleted: works that wait have nothing to answer."""
        for work in self.works:
            work.is_discarded = True
        self.unstored_end = None
        if self.closing is not None:
            self.closing.cancel()
        self.forget_status()

    # The status: kept in memory, and announced through the store, so that the order of all events holds.

    def show(self, directory: str, status: Busy | Retry | None) -> None:
        """What clients see of the session from now on; None: it is idle. Announces nothing: a turn does so when it begins."""
        self.directory, self.status = directory, status
        self.remember_while_busy()

    def forget_status(self) -> None:
        """For a session that is deleted, or that another server has taken over and announces from now on."""
        self.show(self.directory, None)

    def set_status(self, directory: str, status: Busy | Retry) -> asyncio.Future[None]:
        """The future is done when the status is announced."""
        is_shown_elsewhere = isinstance(status, Retry) or isinstance(self.status, Retry)

        def change(tx: SessionTx) -> None:
            if is_shown_elsewhere:
                tx.put_status(status)
            announce_status(tx, status)

        self.show(directory, status)
        return self._sessions.store.post(self.id, directory, change)

    def set_idle(
        self, directory: str, *, releases_lease: bool = False, joins: bool = False, tried_prompt: str | None = None
    ) -> asyncio.Future[EndOfRun]:
        """When the future is done the session shows as idle; it stays busy if the change cannot be stored. `releases_lease`: the
        lease is free then. `joins`: it also stays busy for a prompt that another server has accepted, except `tried_prompt`."""
        store, before = self._sessions.store, self.status
        lease = store.lease(self.id) if releases_lease else None

        def change(tx: SessionTx) -> EndOfRun:
            if lease is not None:
                tx.tx.release(lease)
            return end_of_run(tx, joins, tried_prompt)

        def forget(stored: asyncio.Future[EndOfRun]) -> None:
            """Does nothing if the session's next turn has begun, or will begin."""
            if stored.exception() is None and stored.result().waiting is None and self.status is before:
                self.forget_status()

        done = store.post(self.id, directory, change, releases=releases_lease)
        done.add_done_callback(forget)
        return done


class LiveSessions:
    """The sessions with works on this server, and what concerns all of them."""

    def __init__(self, store: Store, leases: Leases) -> None:
        self.store = store
        self.leases = leases
        self._known: WeakValueDictionary[str, LiveSession] = WeakValueDictionary()
        self.at_work: dict[str, LiveSession] = {}
        """The sessions that are not idle."""
        self._watching = TaskSet()

    def get(self, session_id: str) -> LiveSession:
        live = self._known.get(session_id)
        if live is None:
            live = self._known[session_id] = LiveSession(self, session_id)
        return live

    def is_running(self, session_id: str) -> bool:
        return bool(self.get(session_id).works)

    def _works(self) -> Iterator[SessionWork]:
        return (work for live in self.at_work.values() for work in live.works)

    def turns(self) -> int:
        """How many turns run, or wait to run."""
        return sum(work.kind is WorkKind.TURN for work in self._works())

    def directories(self) -> set[str]:
        """The directories that sessions work in."""
        return {work.directory for work in self._works()}

    def of_directory(self, directory: str) -> list[str]:
        """The sessions that work in the directory."""
        return [live.id for live in self.at_work.values() if any(work.directory == directory for work in live.works)]

    async def statuses(self, directory: str) -> dict[str, SessionStatus]:
        """The statuses of the directory's sessions that are not idle, on whatever server."""
        held = [row for row in await self.store.query(work_rows.leases) if row.directory == directory and row.age < SHOWN_FOR_MS]
        elsewhere = {row.session_id: _STATUS.validate_json(row.status) for row in held if row.status is not None}
        here = [live for live in self.at_work.values() if live.directory == directory]
        return elsewhere | {live.id: live.status for live in here if live.status is not None}

    async def busy_sessions(self) -> set[str]:
        """The sessions that are not idle, in whatever directory, on whatever server."""
        elsewhere = await self.store.query(work_rows.held_sessions, None)
        return {*elsewhere, *(live.id for live in self.at_work.values() if live.status is not None)}

    # Aborts.

    async def abort(self, session_id: str) -> None:
        """Returns when all works on the session, on whatever server, have ended and its record is closed. Does nothing if the
        session is idle. A later prompt gets a turn of its own."""
        here = self._abort_works(session_id)  # now, and not what begins after a deletion that waits for this abort
        # Both at once: a turn here may wait for the other server's run.
        await asyncio.gather(self.leases.request_abort(session_id), *(work.ended.wait() for work in here))

    def _abort_works(self, session_id: str) -> list[SessionWork]:
        works = [work for work in self.get(session_id).works if work.task is not None]
        for work in works:
            work.abort()
        return works

    async def all_ended(self) -> None:
        """Returns when nothing runs."""
        while (work := next(self._works(), None)) is not None:
            await work.ended.wait()

    async def close(self) -> None:
        """Ends of turns that could not be stored are recovered by another server, or at the next start."""
        await self._watching.cancel()
        aborted = [work for session_id in list(self.at_work) for work in self._abort_works(session_id)]
        await asyncio.gather(*(work.ended.wait() for work in aborted))
        closing = [live.closing for live in self.at_work.values() if live.closing is not None]
        for task in closing:
            task.cancel()
        await asyncio.gather(*closing, return_exceptions=True)

    # Other servers of the database.

    def watch(self) -> None:
        """From now on, until `close`: ends runs that other servers want to end, and runs that they may soon take over."""
        what = "looking for runs that another server wants to end"
        self._watching.start(every(POLL_SECONDS, self._look_for_aborts, what), what)
        if self.leases.must_confirm:
            what = "looking for heartbeats"
            self._watching.start(every(POLL_SECONDS, self._look_for_heartbeats, what), what)

    async def _look_for_heartbeats(self) -> None:
        """Fences what runs when no heartbeat was written for so long that another server takes the sessions over. Sends no query,
        because the database may not answer."""
        if not self.leases.is_unconfirmed():
            return
        for live in self.at_work.values():
            if any(work.has_begun and work.task is not None for work in live.works):
                log.error("%s: its run stops here, because no heartbeat could be written; another server goes on", live.id)
                self._fence(live)

    async def _look_for_aborts(self) -> None:
        for session_id in await self.leases.aborted_runs():
            if self._abort_works(session_id):
                self.leases.note_aborted(session_id)

    def _fence(self, live: LiveSession) -> None:
        """Works here end unannounced: the database refuses what they still write, but files cannot refuse."""
        self.store.hold(self.leases.abandon(live.id))
        for work in live.works:
            work.is_fenced = True
            work.abort()

    async def hand_over(self) -> None:
        """Turns stop at once. The server that looks next goes on with them: another one, or this one at its next start. Shell
        lines are aborted first, for the prompts that wait behind them."""
        shells = [work for work in self._works() if work.kind is WorkKind.SHELL]
        for work in shells:
            work.abort()
        for work in shells:
            await work.ended.wait()
        with_turns = [
            live for live in self.at_work.values() if live.works and all(work.kind is WorkKind.TURN for work in live.works)
        ]
        await self.store.barrier()
        held = [lease for live in with_turns if (lease := self.leases.held(live.id)) is not None]
        works = [work for live in with_turns for work in live.works]
        for live in with_turns:
            if live.works:
                self._fence(live)
        for work in works:
            await work.ended.wait()
        with suppress(StorageError):  # then they are taken over when their heartbeat is old
            await self.leases.hand_over([lease for lease in held if self.leases.held(lease.session_id) is None])
