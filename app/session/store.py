"""The one door to sessions, messages and parts: every change is committed here, then announced; every read comes from here.

A part that streams is announced delta by delta from memory. It is written at its end, and before that at most every WRITE_BEHIND
seconds, a long text less often; a read meanwhile sees it as it stands.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

import orjson

from app.bus.base import PartDelta
from app.schema.errors import MessageNotFound, SessionNotFound
from app.schema.message import MessageWithParts, UserMessage
from app.schema.part import Part, ReasoningPart, TextPart
from app.schema.session import Session
from app.session import rows
from app.session.change import SessionChange
from app.session.growing_text import GrowingText
from app.session.prompted_session import PromptedSession
from app.session.rows import DamagedMessage, DamagedSession
from app.session.sequencer import Sequencer
from app.storage.engine import Connection, Database, StorageError
from app.storage.reconnecting import may_be_committed
from app.storage.repositories import message_rows, session_rows
from app.storage.repositories.message_rows import StoredMessages
from app.storage.repositories.pages import PageBeside
from app.storage.repositories.session_rows import SessionFilter
from app.storage.statements import Statements
from app.storage.writer import Chain, Change, Lease, Writer
from app.util import clock, ids

log = logging.getLogger(__name__)

WRITE_BEHIND_SECONDS = 0.25
MAX_CHARACTERS_PER_SECOND = 200_000
"""Characters of one text: its row is written whole, however little of it is new."""

RETRY_DELAYS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""In seconds."""

MAX_READS = 5
"""Of one page, for a session that does not stand still."""

MOST_REVISIONS = 10_000
"""Sessions whose revision is remembered. Of one that is forgotten too early, what was kept is made again."""

PartWatcher = Callable[[Part], None]

T = TypeVar("T")


class MessagePage:
    """Messages as JSON, oldest first; `cursor` reads the page before them, None when there is none."""

    def __init__(self, body: bytes, cursor: int | None) -> None:
        self.body = body
        self.cursor = cursor


class SessionsPage(NamedTuple):
    """Sessions as JSON; `cursor` reads the next page, None when there is none."""

    body: bytes
    cursor: int | None


class Conversation(NamedTuple):
    """A session and its live messages; `diff_basis`: what the session's stored diffs were computed from."""

    session: Session
    messages: list[MessageWithParts]
    diff_basis: str | None


class SessionAndPrompt(NamedTuple):
    """`diff_basis`: what the session's stored diffs were computed from."""

    session: Session
    prompt: UserMessage
    diff_basis: str | None


class Store:
    def __init__(self, database: Database, sql: Statements, writer: Writer, sequencer: Sequencer) -> None:
        self._database = database
        self._sql = sql
        self._writer = writer
        self._sequencer = sequencer
        self._leases: dict[str, Lease] = {}
        self._live: dict[str, dict[str, Part | GrowingText]] = {}
        self._live_directories: dict[str, str] = {}
        self._chains: dict[str, Chain] = {}
        """By live part."""
        self._ending: set[str] = set()
        """Live parts whose last event, or removal, is on its way."""
        self._first_writes: dict[str, asyncio.Future[None]] = {}
        self._unwritten: dict[str, Part | GrowingText] = {}
        self._write_behind: asyncio.TimerHandle | None = None
        self._watchers: dict[str, list[PartWatcher]] = {}
        self._changes = count()
        self._revisions: dict[str, int] = {}
        """Of the sessions whose revision somebody asked for."""

    @contextmanager
    def watching(self, session_id: str, watcher: PartWatcher) -> Iterator[None]:
        """Call `watcher` with every part of a session as it is put, until the block ends."""
        watchers = self._watchers.setdefault(session_id, [])
        watchers.append(watcher)
        try:
            yield
        finally:
            watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(session_id, None)

    # Changing.

    def lock(self, session_id: str) -> AbstractAsyncContextManager[object]:
        """Held while a value is read, changed and written back, on whatever server."""
        return self._database.locks.lock(f"session {session_id}")

    def change(self, session_id: str, directory: str, chain: Chain | None = None) -> SessionChange:
        """`directory` is the workspace whose listeners hear of it. `chain`: it fails if an earlier change of the chain did."""
        return SessionChange(self._sql, directory, session_id, self._leases.get(session_id), chain)

    def post(self, change: SessionChange) -> asyncio.Future[None]:
        """Put in line behind all earlier changes; the future is done when it is stored and announced. A run that began or ended
        since the change was made does not refuse it."""
        made_under = change.change.lease
        if made_under is None or not made_under.is_abandoned:
            change.change.lease = self._leases.get(change.session_id)
        for part_id in change.final_parts:
            self._unwritten.pop(part_id, None)
        done = self._writer.post(change.change)
        done.add_done_callback(lambda _: self.note_change(change.session_id))
        live = self._live.get(change.session_id, {})
        for part in change.parts:
            if part.id not in live:
                self._hide_until(done, part.id)
        self._notify_watchers(change)
        if final := [live[part_id] for part_id in change.final_parts if part_id in live]:
            self._ending.update(_part(streaming).id for streaming in final)
            done.add_done_callback(lambda _: self._stop_streaming(change.session_id, final))
        return done

    def _notify_watchers(self, change: SessionChange) -> None:
        """A watcher that raises does not keep its session's parts from being stored."""
        for watcher in self._watchers.get(change.session_id, ()):
            try:
                for part in change.parts:
                    watcher(part)
            except Exception:
                log.exception("a watcher of session %s failed", change.session_id)

    async def commit(self, change: SessionChange) -> None:
        """Store and announce. A caller that is cancelled meanwhile does not undo it."""
        await asyncio.shield(self.post(change))

    async def commit_persistently(self, change: SessionChange) -> None:
        """For what files say already: while the database refuses it is tried again, for a few seconds. Raises StorageError, at
        once where the outcome of a commit is unknown."""
        for delay in RETRY_DELAYS:
            try:
                return await self.commit(change)
            except StorageError as error:
                if may_be_committed(error):
                    raise
                log.warning("a change of session %s is tried again in %g s: %s", change.session_id, delay, error)
            await asyncio.sleep(delay)
        return await self.commit(change)

    async def update_session(
        self, session_id: str, directory: str, edit: Callable[[Session], Session], *, touch: bool = True
    ) -> Session:
        """Read, edit, write; `touch` sets `time.updated`."""
        async with self.lock(session_id):
            session = edit(await self.session(session_id))
            if touch:
                session = session.model_copy(update={"time": session.time.model_copy(update={"updated": clock.now_ms()})})
            change = self.change(session_id, directory)
            change.update_session(session)
            await self.commit(change)
            return session

    # Streaming.

    def stream(self, streaming: Part | GrowingText, directory: str, text: str = "", chain: Chain | None = None) -> None:
        """Announce that a part delta `text` (or, with none, changed otherwise) without waiting for the disk. Its first text does
        wait: clients must know of no part that a killed server has forgotten. Nothing is announced behind a failed change of its
        chain.

        Frames show the part as it is now: its text may only grow from here on, and its other fields are replaced, not changed."""
        if not isinstance(streaming, GrowingText) and isinstance(streaming, TextPart | ReasoningPart):
            streaming = GrowingText(streaming)
        part = _part(streaming)
        if self._begin_streaming(part, streaming, directory, chain) and text:
            self._hide_until(self._write_rows(part.session_id, [_row(streaming)], chain, ahead_of_deltas=True), part.id)
        else:
            self._write_soon(streaming)
        self.note_change(part.session_id)
        size, as_of_now = _as_of_now(streaming)
        lease = self._leases.get(part.session_id)
        generation = lease.generation if lease else 0
        delta = PartDelta(
            directory, part.session_id, part.message_id, part.id, text, size, as_of_now, "text", part.type, generation
        )
        self._sequencer.delta(delta, chain)

    def _begin_streaming(self, part: Part, streaming: Part | GrowingText, directory: str, chain: Chain | None) -> bool:
        """Whether the part streams from now on, and did not before."""
        live = self._live.setdefault(part.session_id, {})
        before = live.get(part.id)
        if before is streaming and part.id not in self._ending:
            return False
        live[part.id] = streaming
        self._ending.discard(part.id)
        self._live_directories[part.session_id] = directory
        if chain is not None:
            self._chains[part.id] = chain
        return before is None

    def _hide_until(self, written: asyncio.Future[None], part_id: str) -> None:
        """Clients know of no part before it is stored."""
        self._first_writes[part_id] = written
        written.add_done_callback(lambda _: self._first_writes.pop(part_id, None))

    def _write_soon(self, streaming: Part | GrowingText) -> None:
        self._unwritten[_part(streaming).id] = streaming
        if self._write_behind is None:
            self._write_behind = asyncio.get_running_loop().call_later(WRITE_BEHIND_SECONDS, self._write_behind_due)

    def live_parts(self, session_id: str) -> dict[str, Part]:
        live = self._live.get(session_id, {})
        return {part_id: _up_to_date(live[part_id]) for part_id in live if self._is_known(part_id)}

    def streaming_parts(self) -> list[tuple[Part, str, bool]]:
        """Every part that streams, with the directory that it is announced in and whether its last event is on its way."""
        return [
            (part, self._live_directories[session], part.id in self._ending)
            for session in self._live
            for part in self.live_parts(session).values()
        ]

    def owner_of_streaming(self, session_id: str) -> str:
        return self._sequencer.owner(session_id)

    async def first_writes(self) -> None:
        """Wait until every part that is on its way to the disk for the first time is stored and announced."""
        if self._first_writes:
            await asyncio.wait(set(self._first_writes.values()))

    def _is_known(self, part_id: str) -> bool:
        first = self._first_writes.get(part_id)
        return first is None or first.done()

    def _write_behind_due(self) -> None:
        """A long text is written less often: all that is written of a part stays in proportion to the time that it streams."""
        self._write_behind = None
        now = asyncio.get_running_loop().time()
        waiting = {
            part_id: streaming
            for part_id, streaming in self._unwritten.items()
            if isinstance(streaming, GrowingText) and streaming.write_after > now
        }
        unwritten, self._unwritten = self._unwritten, {}
        self._write_live([streaming for part_id, streaming in unwritten.items() if part_id not in waiting])
        for streaming in waiting.values():
            self._write_soon(streaming)

    def _write_live(self, parts: Iterable[Part | GrowingText]) -> None:
        """One that cannot be stored as it stands keeps no other from it."""
        together: dict[tuple[str, Chain | None], list[dict[str, Any]]] = {}
        for streaming in parts:
            part = _part(streaming)
            try:
                row = _row(streaming)
            except Exception:
                log.exception("part %s of session %s cannot be stored as it stands", part.id, part.session_id)
                continue
            together.setdefault((part.session_id, self._chains.get(part.id)), []).append(row)
        for (session_id, chain), part_rows in together.items():
            self._write_rows(session_id, part_rows, chain)

    def _write_rows(
        self, session_id: str, part_rows: Sequence[dict[str, Any]], chain: Chain | None, *, ahead_of_deltas: bool = False
    ) -> asyncio.Future[None]:
        puts = self._sql.put_parts(part_rows)
        holding_back = session_id if ahead_of_deltas else None
        lease = self._leases.get(session_id)
        return self._writer.post(Change(writes=puts, lease=lease, ahead_of_deltas_of=holding_back, chain=chain))

    def _stop_streaming(self, session_id: str, final: Sequence[Part | GrowingText]) -> None:
        """Parts whose rows are up to date are read from there again, unless they have streamed on meanwhile."""
        live = self._live.get(session_id, {})
        for streaming in final:
            part_id = _part(streaming).id
            self._ending.discard(part_id)
            if live.get(part_id) is streaming:
                del live[part_id]
                self._chains.pop(part_id, None)
        if not live:
            self._live.pop(session_id, None)
            self._live_directories.pop(session_id, None)

    # Which revision a session is at.

    def revision(self, session_id: str) -> int:
        """Another number whenever the session is changed, or something streams in it, as far as this server hears of it."""
        if len(self._revisions) >= MOST_REVISIONS:
            del self._revisions[next(iter(self._revisions))]
        return self._revisions.setdefault(session_id, next(self._changes))

    def note_change(self, session_id: str) -> None:
        """Forgotten until the revision is asked for again: most sessions are never asked of."""
        self._revisions.pop(session_id, None)

    # The lease of a turn.

    def hold(self, lease: Lease) -> None:
        """From now on this session's changes are refused unless the lease still stands."""
        self._leases[lease.session_id] = lease

    def release(self, session_id: str) -> None:
        self._leases.pop(session_id, None)

    def lease(self, session_id: str) -> Lease | None:
        return self._leases.get(session_id)

    # Reading.

    async def query(self, query: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run one of `app.storage.repositories`."""
        return await self._database.read(lambda connection: query(connection, *args, **kwargs))

    async def session_json(self, session_id: str) -> bytes:
        found = session_rows.session_json(await self._stored(session_rows.stored_session, session_id))
        if found is None:
            raise DamagedSession(session_id)
        return found

    async def session(self, session_id: str) -> Session:
        return self._read_session(session_id, await self._stored(session_rows.stored_session, session_id))

    async def session_and_waiting_prompts(self, session_id: str) -> tuple[Session, int]:
        """And how many prompts its turn has yet to answer."""
        found = await self._stored(session_rows.session_and_waiting_prompts, session_id)
        return self._read_session(session_id, found), found.waiting

    async def session_to_prompt(self, session_id: str) -> PromptedSession:
        """Ids that are made from now on are newer than those of its messages, which another server may have made."""
        found = await self._stored(session_rows.session_to_prompt, session_id)
        ids.follow(*(newest for newest in (found.message, found.part) if newest is not None))
        return PromptedSession(self._read_session(session_id, found), found.newest_prompt)

    async def session_and_prompt(self, session_id: str, prompt_id: str) -> SessionAndPrompt:
        found = await self._stored(session_rows.session_and_prompt, session_id, prompt_id)
        if found.prompt is None:
            raise MessageNotFound(session_id, prompt_id)
        prompt = rows.read_prompt(session_id, prompt_id, found.prompt)
        return SessionAndPrompt(self._read_session(session_id, found), prompt, found.diff_basis)

    async def sessions_page(self, wanted: SessionFilter, limit: int | None = None, before: int | None = None) -> SessionsPage:
        """The newest created first: all of them without a limit; `before` is the cursor of an earlier page."""
        found, cursor = await self.query(session_rows.session_page, wanted, limit, before)
        return SessionsPage(orjson.dumps(rows.session_values(found)), cursor)

    async def sessions_beside(self, wanted: SessionFilter, at: PageBeside) -> list[Session]:
        """Without damaged ones. Raises UnknownAnchor."""
        return rows.read_sessions(await self.query(session_rows.sessions_beside, wanted, at))

    async def sessions(self, session_ids: Sequence[str]) -> dict[str, Session]:
        """Those that there are, without damaged ones."""
        found = rows.read_sessions(await self.query(session_rows.some_sessions, session_ids))
        return {session.id: session for session in found}

    async def session_tree(self, session_id: str) -> list[Session]:
        """A session and all its descendants, children before their parents."""
        return [rows.read_session(session_id, row) for row in await self.query(session_rows.session_tree, session_id)]

    async def page_json(self, session_id: str, limit: int | None, before: int | None = None) -> MessagePage:
        """All messages, or the `limit` newest (older than `before`)."""
        query = partial(message_rows.older_messages, limit=limit, before=before) if limit else message_rows.all_messages
        _, stored = await self._with_session(session_id, query)
        body = orjson.dumps(rows.message_values(session_id, stored, self.live_parts(session_id)))
        return MessagePage(body, stored.messages[0].seq if stored.more else None)

    async def message_json(self, session_id: str, message_id: str) -> bytes:
        _, stored = await self._with_message(session_id, message_id)
        found = self._only_json(session_id, stored)
        if found is None:
            raise DamagedMessage(session_id, message_id)
        return found

    async def message(self, session_id: str, message_id: str) -> MessageWithParts:
        return (await self.session_and_message(session_id, message_id))[1]

    async def session_and_message(self, session_id: str, message_id: str) -> tuple[Session, MessageWithParts]:
        session, stored = await self._with_message(session_id, message_id)
        messages = rows.read_messages(session_id, stored, self.live_parts(session_id))
        if not messages:
            raise DamagedMessage(session_id, message_id)
        return self._read_session(session_id, session), messages[0]

    async def messages(self, session_id: str) -> list[MessageWithParts]:
        """The whole history, oldest first."""
        _, stored = await self._with_session(session_id, message_rows.all_messages)
        return rows.read_messages(session_id, stored, self.live_parts(session_id))

    async def live_messages(self, session_id: str) -> list[MessageWithParts]:
        """What the model is to know: the messages from the newest finished compaction on, prompts without their diffs."""
        return (await self.conversation(session_id)).messages

    async def conversation(self, session_id: str) -> Conversation:
        """As of one moment."""
        session, stored = await self._with_session(session_id, message_rows.live_messages)
        _follow_newest(stored)
        messages = rows.read_messages(session_id, stored, self.live_parts(session_id))
        return Conversation(self._read_session(session_id, session), messages, session.diff_basis)

    async def answer_json(self, session_id: str, prompt_id: str | None = None) -> bytes | None:
        """The newest answer in a session, or the newest to one prompt. Raises NotFound where there is no such session."""
        _, stored = await self._with_session(session_id, partial(message_rows.newest_answer, prompt_id=prompt_id))
        return self._only_json(session_id, stored)

    async def end_of_turn(self, session_id: str) -> tuple[str | None, bytes | None]:
        """The newest prompt that waits and came after all that was answered; the newest answer."""

        def read(connection: Connection) -> tuple[str | None, StoredMessages]:
            unanswered = message_rows.unanswered_prompt(connection, session_id)
            return unanswered, message_rows.newest_answer(connection, session_id)

        unanswered, stored = await self.as_announced(session_id, lambda: self._database.read(read))
        return unanswered, self._only_json(session_id, stored)

    async def accepts_writes(self) -> bool:
        """Whether the database can be written now. Writes something that changes nothing."""
        try:
            await self._database.write(lambda connection: bool(connection.execute(self._sql.advance_journal, {"count": 0})))
        except StorageError:
            return False
        return True

    async def drain(self) -> None:
        """Write what is still in memory and wait until all is stored."""
        if self._write_behind is not None:
            self._write_behind.cancel()
            self._write_behind = None
            unwritten, self._unwritten = self._unwritten, {}
            self._write_live(unwritten.values())
        await self._writer.drain()

    def note_owners(self) -> None:
        """From now on it is looked up whose session an event is of."""
        self._writer.has_owners = True

    def _read_session(self, session_id: str, row: Any) -> Session:
        session = rows.read_session(session_id, row)
        if session.owner:
            self.note_owners()
        return session

    def _only_json(self, session_id: str, stored: StoredMessages) -> bytes | None:
        """None where there is none, or a damaged one."""
        messages = rows.message_values(session_id, stored, self.live_parts(session_id))
        return orjson.dumps(messages[0]) if messages else None

    async def _stored(self, query: Callable[..., Any], session_id: str, *args: Any) -> Any:
        """The row of a session that must exist."""
        found = await self.query(query, session_id, *args)
        if found is None:
            raise SessionNotFound(session_id)
        return found

    async def _with_message(self, session_id: str, message_id: str) -> tuple[Any, StoredMessages]:
        session, stored = await self._with_session(session_id, partial(message_rows.some_messages, message_ids=[message_id]))
        if not stored.messages:
            raise MessageNotFound(session_id, message_id)
        return session, stored

    async def _with_session(
        self, session_id: str, query: Callable[[Connection, str], StoredMessages]
    ) -> tuple[Any, StoredMessages]:
        """The row of a session that must exist, and messages of it as of the same moment. What streams is read right behind."""

        def read(connection: Connection) -> tuple[Any, StoredMessages]:
            session = session_rows.stored_session(connection, session_id)
            if session is None:
                raise SessionNotFound(session_id)
            return session, query(connection, session_id)

        return await self.as_announced(session_id, lambda: self._database.read(read))

    async def as_announced(self, session_id: str, read: Callable[[], Awaitable[T]]) -> T:
        """What `read` reads, again when something of the session was announced meanwhile: a client that has heard of it, and
        takes the answer for the present state, would lose it."""
        with self._sequencer.counting(session_id):
            for _ in range(MAX_READS):
                before = self._sequencer.latest(session_id)
                found = await read()
                if self._sequencer.latest(session_id) == before:
                    break
            return found


def _part(streaming: Part | GrowingText) -> Part:
    """Its text may be behind."""
    return streaming.part if isinstance(streaming, GrowingText) else streaming


def _up_to_date(streaming: Part | GrowingText) -> Part:
    return streaming.joined() if isinstance(streaming, GrowingText) else streaming


def _row(streaming: Part | GrowingText) -> dict[str, Any]:
    """To be written now; a long text is written again later than a short one."""
    if isinstance(streaming, GrowingText):
        streaming.write_after = asyncio.get_running_loop().time() + streaming.size / MAX_CHARACTERS_PER_SECOND
    return rows.part_row(_up_to_date(streaming))


def _follow_newest(stored: StoredMessages) -> None:
    """An answer to them has newer ids, whichever server made theirs."""
    for message in stored.messages[-1:]:
        newest = next((part.id for part in reversed(stored.parts) if part.message_id == message.id), message.id)
        ids.follow(message.id, newest)


def _as_of_now(streaming: Part | GrowingText) -> tuple[int, Callable[[], bytes]]:
    """The length of its text, and what renders the part as it is now, at any later time, without a copy of the text."""
    if isinstance(streaming, GrowingText):
        return streaming.size, partial(streaming.json_at_length, streaming.size)
    return 0, streaming.model_copy().wire_json
