"""What visitors of share links are sent: rendered once for each state of the session, in a thread, and kept."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

from app.schema.message import MESSAGES
from app.schema.part import Part
from app.schema.session import Session
from app.session import rows
from app.session.shared_view import shared_messages, shared_session
from app.session.store import Store
from app.storage import queries, tables
from app.storage.engine import Connection

MOST_BYTES = 64 * 1024 * 1024
"""Of all conversations that are kept."""

MOST_SECONDS = 60.0
"""A part that another server replaces shows in no revision."""

PIECE_BYTES = 256 * 1024
PIECES_AT_ONCE = 4
"""In one round of the event loop, however many visitors there are: whatever else waits for it is served between."""


@dataclass(frozen=True, slots=True)
class SharedBody:
    """The JSON of a SharedConversation, as of a revision of its session."""

    body: bytes
    etag: str
    revision: tuple[object, ...]
    made_at: float

    def is_current(self, revision: tuple[object, ...]) -> bool:
        return self.revision == revision and self.made_at > time.monotonic() - MOST_SECONDS


@dataclass(frozen=True, slots=True)
class _Stored:
    session: Session
    messages: queries.StoredMessages
    diff: str
    todo: str


class SharedConversations:
    """Requests for one link follow each other, so that those that come at once share the work. One conversation is rendered at a
    time; `most_bytes` are kept."""

    def __init__(self, store: Store, most_bytes: int = MOST_BYTES) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._kept: dict[str, SharedBody] = {}
        self._kept_bytes = 0
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._rendering = asyncio.Semaphore(1)
        self._pieces_at_once = asyncio.Semaphore(PIECES_AT_ONCE)

    async def get(self, share_id: str) -> SharedBody | None:
        """None when nothing is shared by that id."""
        async with self._locks.setdefault(share_id, asyncio.Lock()):
            kept = self._take(share_id)
            stored = await self._store.query(queries.shared_revision, share_id)
            if stored is None:
                return None
            revision = (self._store.revision(stored.session_id), *stored)
            if kept is None or not kept.is_current(revision):
                kept = await self._make(stored.session_id, revision)
            if kept is not None:
                self._keep(share_id, kept)
            return kept

    async def pieces(self, body: SharedBody) -> AsyncIterator[bytes]:
        """A visitor who reads slowly holds no copy of the body."""
        for start in range(0, len(body.body), PIECE_BYTES):
            async with self._pieces_at_once:
                await asyncio.sleep(0)
            yield body.body[start : start + PIECE_BYTES]

    async def _make(self, session_id: str, revision: tuple[object, ...]) -> SharedBody | None:
        async with self._rendering:
            stored = await self._store.query(_stored, session_id)
            if stored is None:
                return None
            live = {part_id: part.model_copy() for part_id, part in self._store.live_parts(session_id).items()}
            body, etag = await asyncio.to_thread(_render, stored, live)
        return SharedBody(body, etag, revision, time.monotonic())

    def _take(self, share_id: str) -> SharedBody | None:
        kept = self._kept.pop(share_id, None)
        self._kept_bytes -= len(kept.body) if kept else 0
        return kept

    def _keep(self, share_id: str, body: SharedBody) -> None:
        """The least recently visited make room."""
        self._kept[share_id] = body
        self._kept_bytes += len(body.body)
        while self._kept_bytes > self._most_bytes:
            self._take(next(iter(self._kept)))


def _stored(connection: Connection, session_id: str) -> _Stored | None:
    """All of it as of one moment."""
    body = queries.session_body(connection, session_id)
    if not body:
        return None
    return _Stored(
        Session.model_validate_json(body),
        queries.all_messages(connection, session_id),
        diff=queries.body_of(connection, tables.DIFF, session_id=session_id) or "[]",
        todo=queries.body_of(connection, tables.TODO, session_id=session_id) or "[]",
    )


def _render(stored: _Stored, live: Mapping[str, Part]) -> tuple[bytes, str]:
    """And its ETag."""
    session = stored.session
    history = rows.read_messages(session.id, stored.messages, live)
    body = b'{"session":%b,"messages":%b,"diff":%b,"todo":%b}' % (
        shared_session(session).wire_json(),
        MESSAGES.dump_json(shared_messages(history, session.revert), exclude_none=True),
        stored.diff.encode(),
        stored.todo.encode(),
    )
    return body, f'"{hashlib.sha256(body).hexdigest()}"'
