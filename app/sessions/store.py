"""The one way to sessions, messages and parts: every change is committed here, then announced; every read comes from here."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import orjson
from pydantic import TypeAdapter

from app.record import tables
from app.record.engine import Connection, Database, StorageError
from app.record.postgres import may_be_committed
from app.record.repositories import message_rows, session_rows
from app.record.repositories.message_rows import StoredMessages
from app.record.repositories.session_rows import PageBeside, SessionFilter
from app.record.statements import statements
from app.record.writer import Chain, Lease, Tx, Writer
from app.schema.errors import MessageNotFound, SessionNotFound
from app.schema.message import MessageWithParts
from app.schema.part import Part
from app.schema.session import Session, Todo
from app.sessions import rows
from app.sessions.live_parts import LiveParts, SessionPublisher
from app.sessions.rows import DamagedMessage, DamagedSession, PromptedSession
from app.sessions.session_tx import SessionTx
from app.util import ids

log = logging.getLogger(__name__)

RETRY_DELAYS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""In seconds."""

MAX_READS = 5
"""How often one page is read at most, while the session keeps changing."""

_TODOS = TypeAdapter(list[Todo])

PartWatcher = Callable[[Part], None]

T = TypeVar("T")


class Page(NamedTuple):
    """Sessions, or messages oldest first, as JSON. `cursor`: of the next page, of messages the one before; None on the last
    page."""

    body: bytes
    cursor: int | None


class Conversation(NamedTuple):
    """A session and its live messages; `diff_basis`: what the session's stored diffs were computed from."""

    session: Session
    messages: list[MessageWithParts]
    diff_basis: str | None


class Store:
    def __init__(self, database: Database, writer: Writer, publisher: SessionPublisher) -> None:
        self._database = database
        self._writer = writer
        self._publisher = publisher
        self._leases: dict[str, Lease] = {}
        self.live = LiveParts(writer, publisher, self._leases)
        self._watchers: dict[str, list[PartWatcher]] = {}

    @contextmanager
    def watching(self, session_id: str, watcher: PartWatcher) -> Iterator[None]:
        """Calls `watcher` with every part of a session as its turn puts it, until the block ends."""
        watchers = self._watchers.setdefault(session_id, [])
        watchers.append(watcher)
        try:
            yield
        finally:
            watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(session_id, None)

    # Changing.

    async def write(self, session_id: str, directory: str, work: Callable[[SessionTx], T]) -> T:
        """Stores and announces a change of a session. A caller that is cancelled meanwhile does not undo it. `directory`: the
        workspace whose listeners receive it."""
        return await asyncio.shield(self.post(session_id, directory, work))

    def post(
        self,
        session_id: str,
        directory: str,
        work: Callable[[SessionTx], T],
        chain: Chain | None = None,
        *,
        releases: bool = False,
    ) -> asyncio.Future[T]:
        """Queues a change after all earlier ones; the future is done when it is stored and announced. It is refused if the lease
        that this server holds now is lost by then; a change that `releases` the lease checks that itself. `chain`: the change
        fails if an earlier change of the chain did."""
        lease = None if releases else self._leases.get(session_id)

        def change(tx: Tx) -> T:
            tx.require(lease)
            return work(SessionTx(tx, session_id, directory))

        return self._writer.post(change, session_id, chain)

    def post_parts(
        self,
        session_id: str,
        directory: str,
        work: Callable[[SessionTx], T],
        *,
        parts: Sequence[Part] = (),
        removed: Sequence[Part] = (),
        chain: Chain | None = None,
    ) -> asyncio.Future[T]:
        """As `post`, for a change that puts `parts` in full, or removes some, which replaces what they streamed before."""
        done = self.post(session_id, directory, work, chain)
        for part in (*parts, *removed):
            self.live.replace(part.id, done, session_id)
        if session_id in self._watchers:
            self._notify_watchers(session_id, parts)
        return done

    def _notify_watchers(self, session_id: str, parts: Sequence[Part]) -> None:
        """A watcher that raises does not keep its session's parts from being stored."""
        for watcher in self._watchers[session_id]:
            try:
                for part in parts:
                    watcher(part)
            except Exception:
                log.exception("a watcher of session %s failed", session_id)

    async def write_persistently(self, session_id: str, directory: str, work: Callable[[SessionTx], T]) -> T:
        """For a change that was made in files already: tried again for a few seconds while the database refuses it. Raises
        StorageError, at once if the outcome of a commit is unknown."""
        for delay in RETRY_DELAYS:
            try:
                return await self.write(session_id, directory, work)
            except StorageError as error:
                if may_be_committed(error):
                    raise
                log.warning("a change of session %s is tried again in %g s: %s", session_id, delay, error)
            await asyncio.sleep(delay)
        return await self.write(session_id, directory, work)

    def lock(self, name: str) -> AbstractAsyncContextManager[object]:
        """Held by one request at a time, of all servers."""
        return self._database.locks.lock(f"session {name}")

    # The lease of a turn.

    def hold(self, lease: Lease) -> None:
        """From now on the session's changes are refused if the lease is lost."""
        self._leases[lease.session_id] = lease

    def release(self, session_id: str) -> None:
        self._leases.pop(session_id, None)

    def lease(self, session_id: str) -> Lease | None:
        return self._leases.get(session_id)

    # Reading.

    async def query(self, query: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Runs a query of `app.record.repositories`."""
        return await self._database.read(lambda connection: query(connection, *args, **kwargs))

    async def session_json(self, session_id: str) -> bytes:
        found = session_rows.session_json(await self._stored(session_rows.stored_session, session_id))
        if found is None:
            raise DamagedSession(session_id)
        return found

    async def session(self, session_id: str) -> Session:
        return self._read_session(session_id, await self._stored(session_rows.stored_session, session_id))

    async def session_to_prompt(self, session_id: str) -> PromptedSession:
        """Also makes later ids newer than those of the session's messages, which another server may have made."""
        found = await self._stored(session_rows.session_to_prompt, session_id)
        ids.follow(found.message or "", found.part or "")
        return PromptedSession(self._read_session(session_id, found), found.newest_prompt)

    async def sessions_page(self, wanted: SessionFilter, limit: int | None = None, before: int | None = None) -> Page:
        """Newest created first; all sessions without a limit. `before`: the cursor of an earlier page."""
        found, cursor = await self.query(session_rows.session_page, wanted, limit, before)
        return Page(orjson.dumps(rows.session_values(found)), cursor)

    async def sessions_beside(self, wanted: SessionFilter, at: PageBeside) -> list[Session]:
        """Without damaged sessions. Raises InvalidCursor."""
        return rows.read_sessions(await self.query(session_rows.sessions_beside, wanted, at))

    async def sessions(self, session_ids: Sequence[str]) -> dict[str, Session]:
        """Without unknown and damaged sessions."""
        found = rows.read_sessions(await self.query(session_rows.some_sessions, session_ids))
        return {session.id: session for session in found}

    async def session_tree(self, session_id: str) -> list[Session]:
        """A session and all its descendants, children before their parents."""
        return [rows.read_session(session_id, row) for row in await self.query(session_rows.session_tree, session_id)]

    async def page_json(self, session_id: str, limit: int | None, before: int | None = None) -> Page:
        """All messages, or the `limit` newest (older than `before`)."""
        query = partial(message_rows.older_messages, limit=limit, before=before) if limit else message_rows.all_messages
        _, stored = await self.as_announced(session_id, lambda: self._with_session(session_id, query))
        body = orjson.dumps(rows.message_values(session_id, stored, self.live.of(session_id)))
        return Page(body, stored.messages[0].seq if stored.more else None)

    async def message_json(self, session_id: str, message_id: str) -> bytes:
        _, stored = await self._with_message(session_id, message_id)
        found = self.only_json(session_id, stored)
        if found is None:
            raise DamagedMessage(session_id, message_id)
        return found

    async def message(self, session_id: str, message_id: str) -> MessageWithParts:
        session, stored = await self._with_message(session_id, message_id)
        messages = rows.read_messages(session_id, stored, self.live.of(session_id))
        if not messages:
            raise DamagedMessage(session_id, message_id)
        self._read_session(session_id, session)  # raises DamagedSession
        return messages[0]

    async def session_and_messages(self, session_id: str) -> tuple[Session, list[MessageWithParts]]:
        """The session and its whole history, oldest first."""
        session, stored = await self._with_session(session_id, message_rows.all_messages)
        messages = rows.read_messages(session_id, stored, self.live.of(session_id))
        return self._read_session(session_id, session), messages

    async def conversation(self, session_id: str) -> Conversation:
        """The session and the messages that the model is sent, as of one moment: from the newest finished compaction on, prompts
        without their diffs. Also makes later ids newer than those of the messages, whichever server made these."""
        session, stored = await self._with_session(session_id, message_rows.live_messages)
        if stored.messages:
            message_id = stored.messages[-1].id
            ids.follow(message_id, next((part.id for part in reversed(stored.parts) if part.message_id == message_id), ""))
        messages = rows.read_messages(session_id, stored, self.live.of(session_id))
        return Conversation(self._read_session(session_id, session), messages, session.diff_basis)

    async def todos(self, session_id: str) -> list[Todo]:
        body = await self.query(session_rows.body_of, tables.TODO, session_id)
        return _TODOS.validate_json(body) if body else []

    async def answer_json(self, session_id: str, prompt_id: str | None = None) -> bytes | None:
        """The newest answer in a session, or to one prompt. Raises NotFound for an unknown session."""
        query = partial(message_rows.newest_answer, prompt_id=prompt_id)
        _, stored = await self.as_announced(session_id, lambda: self._with_session(session_id, query))
        return self.only_json(session_id, stored)

    async def accepts_writes(self) -> bool:
        """Whether the database can be written now. Tries by a write that changes nothing."""
        try:
            advance = statements(self._database.dialect).advance_journal
            await self._database.write(lambda connection: bool(connection.execute(advance, {"count": 0})))
        except StorageError:
            return False
        return True

    async def barrier(self) -> None:
        """Writes what is still in memory and waits until all is stored."""
        self.live.write_all()
        await self._writer.barrier()

    def note_owners(self) -> None:
        """From now on the owner of each event's session is looked up."""
        self._writer.has_owners = True

    def _read_session(self, session_id: str, row: Any) -> Session:
        session = rows.read_session(session_id, row)
        if session.owner:
            self.note_owners()
        return session

    def only_json(self, session_id: str, stored: StoredMessages) -> bytes | None:
        """None without an answer, or for a damaged one."""
        messages = rows.message_values(session_id, stored, self.live.of(session_id))
        return orjson.dumps(messages[0]) if messages else None

    async def _stored(self, query: Callable[..., Any], session_id: str) -> Any:
        """The row of a session that must exist."""
        found = await self.query(query, session_id)
        if found is None:
            raise SessionNotFound(session_id)
        return found

    async def _with_message(self, session_id: str, message_id: str) -> tuple[Any, StoredMessages]:
        query = partial(message_rows.some_messages, message_ids=[message_id])
        session, stored = await self.as_announced(session_id, lambda: self._with_session(session_id, query))
        if not stored.messages:
            raise MessageNotFound(session_id, message_id)
        return session, stored

    async def _with_session(
        self, session_id: str, query: Callable[[Connection, str], StoredMessages]
    ) -> tuple[Any, StoredMessages]:
        """The row of a session that must exist, and messages of it as of the same moment."""

        def read(connection: Connection) -> tuple[Any, StoredMessages]:
            session = session_rows.stored_session(connection, session_id)
            if session is None:
                raise SessionNotFound(session_id)
            return session, query(connection, session_id)

        return await self._database.read(read)

    async def as_announced(self, session_id: str, read: Callable[[], Awaitable[T]]) -> T:
        """Reads again if something of the session was announced meanwhile: a client that has received it, and takes the answer
        for the present state, would lose it."""
        with self._publisher.counting(session_id):
            for _ in range(MAX_READS):
                before = self._publisher.latest(session_id)
                found = await read()
                if self._publisher.latest(session_id) == before:
                    break
            return found
