"""The responses for share links: rendered in a thread once for each revision of a session, and cached."""

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
from app.storage import tables
from app.storage.engine import Connection
from app.storage.repositories import message_rows, session_rows

MAX_CACHE_BYTES = 64 * 1024 * 1024
"""The total size of cached conversations."""

MAX_AGE_SECONDS = 60.0
"""Limits staleness: without Redis this server does not hear of what streams on another."""

CHUNK_BYTES = 256 * 1024
CONCURRENT_CHUNKS = 4
"""Chunks per iteration of the event loop, for all visitors together, so that other requests are served in between."""


@dataclass(frozen=True, slots=True)
class SharedBody:
    """The JSON of a SharedConversation for one revision of its session."""

    body: bytes
    etag: str
    revision: tuple[object, ...]
    made_at: float

    def is_current(self, revision: tuple[object, ...]) -> bool:
        return self.revision == revision and self.made_at > time.monotonic() - MAX_AGE_SECONDS


_Stored = tuple[Session, message_rows.StoredMessages, str, str]
"""With the JSON of the diff and of the todos."""


class SharedConversations:
    """Requests for one link run one after another, so that concurrent ones share the work. One conversation is rendered at a
    time. `max_bytes` limits the cache."""

    def __init__(self, store: Store, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._cache: dict[str, SharedBody] = {}
        self._cache_bytes = 0
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._rendering = asyncio.Semaphore(1)
        self._concurrent_chunks = asyncio.Semaphore(CONCURRENT_CHUNKS)

    async def get(self, share_id: str) -> SharedBody | None:
        """None if no session has that link."""
        async with self._locks.setdefault(share_id, asyncio.Lock()):
            cached = self._pop(share_id)
            stored = await self._store.query(session_rows.shared_revision, share_id)
            if stored is None:
                return None
            revision = (self._store.revision(stored.session_id), *stored)
            if cached is None or not cached.is_current(revision):
                cached = await self._make(stored.session_id, revision)
            if cached is not None:
                self._put(share_id, cached)
            return cached

    async def chunks(self, body: SharedBody) -> AsyncIterator[bytes]:
        """Yields slices, so that a slow visitor does not hold a copy of the body."""
        for start in range(0, len(body.body), CHUNK_BYTES):
            async with self._concurrent_chunks:
                await asyncio.sleep(0)
            yield body.body[start : start + CHUNK_BYTES]

    async def _make(self, session_id: str, revision: tuple[object, ...]) -> SharedBody | None:
        async with self._rendering:
            stored = await self._store.query(_stored, session_id)
            if stored is None:
                return None
            live = {part_id: part.model_copy() for part_id, part in self._store.live.of(session_id).items()}
            body, etag = await asyncio.to_thread(_render, stored, live)
        return SharedBody(body, etag, revision, time.monotonic())

    def _pop(self, share_id: str) -> SharedBody | None:
        cached = self._cache.pop(share_id, None)
        self._cache_bytes -= len(cached.body) if cached else 0
        return cached

    def _put(self, share_id: str, body: SharedBody) -> None:
        """Evicts the least recently visited conversations."""
        self._cache[share_id] = body
        self._cache_bytes += len(body.body)
        while self._cache_bytes > self._max_bytes:
            self._pop(next(iter(self._cache)))


def _stored(connection: Connection, session_id: str) -> _Stored | None:
    """Reads everything in one transaction."""
    session = session_rows.stored_session(connection, session_id)
    if session is None:
        return None
    diff, todo = (session_rows.body_of(connection, of, session_id) or "[]" for of in (tables.DIFF, tables.TODO))
    return rows.read_session(session_id, session), message_rows.all_messages(connection, session_id), diff, todo


def _render(stored: _Stored, live: Mapping[str, Part]) -> tuple[bytes, str]:
    """The body and its ETag."""
    session, messages, diff, todo = stored
    history = rows.read_messages(session.id, messages, live)
    body = b'{"session":%b,"messages":%b,"diff":%b,"todo":%b}' % (
        shared_session(session).wire_json(),
        MESSAGES.dump_json(shared_messages(history, session.revert), exclude_none=True),
        diff.encode(),
        todo.encode(),
    )
    return body, f'"{hashlib.sha256(body).hexdigest()}"'
