"""Permission requests and questions that wait for a person's answer.

Each is a row until it is answered or withdrawn, so that every client can list it. An answer deletes the row in the transaction
that stores what it brings about, so of several answers to one request exactly one is accepted. The caller is woken after the
commit.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from app.bus.base import Event
from app.schema.errors import NotFound
from app.schema.permission import PermissionRequest
from app.schema.question import QuestionRequest
from app.storage import queries
from app.storage.engine import Connection, Database
from app.storage.statements import Statements
from app.storage.writer import Change, Rows, Writer

log = logging.getLogger(__name__)

R = TypeVar("R", bound=PermissionRequest | QuestionRequest)

T = TypeVar("T")
"""What an answer is: a value that could be stored."""

RETRY_SECONDS = 1.0
MOST_RETRY_SECONDS = 60.0


class RequestNotPending(NotFound):
    def __init__(self, request_id: str) -> None:
        super().__init__(f"No request {request_id} is waiting: it was answered already, or its turn is over")


@dataclass(slots=True, eq=False)
class PendingRequest(Generic[R, T]):
    """`is_left`: the server that asked is gone, and the call has not asked again yet."""

    directory: str
    request: R
    is_left: bool = False
    answer: asyncio.Future[T] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def row(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.request.id,
            "kind": kind,
            "session_id": self.request.session_id,
            "directory": self.directory,
            "body": self.request.wire_json().decode(),
        }

    def asks_the_same(self, request: R) -> bool:
        return self.request.wire() == {**request.wire(), "id": self.request.id}


@dataclass(frozen=True, slots=True)
class RequestKind(Generic[R]):
    """`name` is the column `kind`; the events take the directory and the request. `read` raises ValidationError."""

    name: str
    read: Callable[[str], R]
    asked: Callable[[str, R], Event]
    withdrawn: Callable[[str, R], Event]

    def parse(self, body: str) -> R | None:
        """None for a damaged one: nobody can answer it."""
        try:
            return self.read(body)
        except ValidationError:
            log.error("a request that waits for a person is damaged and left out: %.80r", body)
            return None


@dataclass(frozen=True, slots=True)
class Resolution(Generic[T]):
    """`event` announces the answer."""

    request_id: str
    event: Event
    answer: T


class PendingRequests(Generic[R, T]):
    """Those of one kind that this process waits for, or that a killed server left to it."""

    def __init__(self, kind: RequestKind[R], database: Database, sql: Statements, writer: Writer) -> None:
        self._kind = kind
        self._database = database
        self._sql = sql
        self._writer = writer
        self._pending: dict[str, PendingRequest[R, T]] = {}
        self._withdrawn: dict[str, PendingRequest[R, T]] = {}
        """Those whose row is still there."""
        self._removing: asyncio.Task[None] | None = None

    # Asking.

    def add(self, directory: str, request: R) -> PendingRequest[R, T]:
        """To be waited for at once. What a killed server asked in the same words goes on under its id, so that a client's dialog
        stays good."""
        pending = self._left_for(request) or PendingRequest(directory, request)
        self._pending[pending.request.id] = pending
        return pending

    async def wait(self, pending: PendingRequest[R, T]) -> T:
        """Returns the answer that was stored. Cancelled, it withdraws the request. Raises StorageError when the request cannot be
        stored."""
        try:
            if pending.is_left:
                await self._ask_again(pending)
            else:
                await self._writer.commit(Change([(self._sql.put_ask, [pending.row(self._kind.name)])], [self._asked(pending)]))
            return await pending.answer
        except BaseException:
            self._withdraw(pending)
            raise
        finally:
            self._pending.pop(pending.request.id, None)

    async def _ask_again(self, pending: PendingRequest[R, T]) -> None:
        """Announce it to the clients of this server, unless an answer has been stored meanwhile."""
        pending.is_left = False

        def require(connection: Connection) -> None:
            if not queries.is_pending(connection, pending.request.id):
                raise RequestNotPending(pending.request.id)

        with suppress(RequestNotPending):
            await self._writer.commit(Change(events=[self._asked(pending)], work=require))

    def _asked(self, pending: PendingRequest[R, T]) -> Event:
        return self._kind.asked(pending.directory, pending.request)

    def _withdraw(self, *withdrawn: PendingRequest[R, T]) -> None:
        """At once for everybody who asks this server; the rows go now or, if the database refuses, once it accepts writes."""
        self._withdrawn.update((pending.request.id, pending) for pending in withdrawn)
        self._remove(withdrawn)

    def _remove(self, withdrawn: Sequence[PendingRequest[R, T]]) -> asyncio.Future[None]:
        gone = [(pending.request.id, self._kind.withdrawn(pending.directory, pending.request)) for pending in withdrawn]
        stored = self._writer.post(self._deletion(gone, []))
        stored.add_done_callback(lambda _: self._removed(stored, withdrawn))
        return stored

    def _removed(self, stored: asyncio.Future[None], withdrawn: Sequence[PendingRequest[R, T]]) -> None:
        if stored.exception() is None:
            for pending in withdrawn:
                self._withdrawn.pop(pending.request.id, None)
        elif self._removing is None or self._removing.done():
            self._removing = asyncio.create_task(self._remove_later(), name="withdraw requests")

    async def _remove_later(self) -> None:
        delay = RETRY_SECONDS
        while self._withdrawn:
            await asyncio.sleep(delay)
            delay = min(2 * delay, MOST_RETRY_SECONDS)
            await asyncio.wait({self._remove(list(self._withdrawn.values()))})

    # Answering.

    def find(self, request_id: str) -> PendingRequest[R, T]:
        """Raises RequestNotPending."""
        if request_id not in self._pending:
            raise RequestNotPending(request_id)
        return self._pending[request_id]

    def of_session(self, session_id: str) -> list[PendingRequest[R, T]]:
        return [pending for pending in self._pending.values() if pending.request.session_id == session_id]

    async def resolve(
        self, first: Resolution[T], others: Sequence[Resolution[T]] = (), writes: Sequence[tuple[Any, Rows]] = ()
    ) -> None:
        """Store an answer with all it brings about, in one transaction, then wake the callers. Of `others`, those that still wait
        are answered too. Raises RequestNotPending, or StorageError: then nothing has changed."""
        deleted: list[str] = []
        resolutions = [first, *others]
        gone = [(resolution.request_id, resolution.event) for resolution in resolutions]
        change = self._deletion(gone, deleted, required=first.request_id)
        change.writes.extend(writes)
        stored = self._writer.post(change)
        # Shielded: a client that hangs up after the commit must not leave the caller waiting.
        await asyncio.shield(self._wake_when(stored, resolutions, deleted))

    async def _wake_when(self, stored: asyncio.Future[None], resolutions: list[Resolution[T]], deleted: list[str]) -> None:
        await stored
        for resolution in resolutions:
            if resolution.request_id in deleted:
                self._wake(resolution)

    def _wake(self, resolution: Resolution[T]) -> None:
        pending = self._pending.get(resolution.request_id)
        if pending is not None and not pending.answer.done():
            pending.answer.set_result(resolution.answer)

    def _deletion(self, gone: Sequence[tuple[str, Event]], deleted: list[str], required: str | None = None) -> Change:
        """Deletes the rows that are there, announces their events and no others, and puts their ids into `deleted`. Refused
        with RequestNotPending if `required` is not among them."""
        change = Change(events=[event for _, event in gone])

        def delete(connection: Connection) -> None:
            deleted[:] = [key for key, _ in gone if connection.execute(self._sql.delete_ask, {"gone": key}).rowcount]
            if required is not None and required not in deleted:
                raise RequestNotPending(required)
            change.events[:] = [event for key, event in gone if key in deleted]

        change.work = delete
        return change

    # Reading.

    async def all_json(self, directory: str) -> bytes:
        bodies = await self._database.read(lambda connection: queries.pending_asks(connection, self._kind.name, directory))
        return b"[%b]" % b",".join(body.encode() for body in bodies if self._is_shown(body))

    def _is_shown(self, body: str) -> bool:
        request = self._kind.parse(body)
        return request is not None and request.id not in self._withdrawn

    # After a restart.

    async def left_behind(self, sessions: Collection[str] | None = None) -> list[R]:
        """What dead servers waited for in `sessions`, or in all that no server works on. The answer to one is kept for the call,
        which asks again."""
        rows = await self._database.read(lambda connection: queries.left_asks(connection, self._kind.name, sessions))
        requests = [(row.directory, request) for row in rows if (request := self._kind.parse(row.body)) is not None]
        left = [(directory, request) for directory, request in requests if request.id not in self._withdrawn]
        for directory, request in left:
            self._pending.setdefault(request.id, PendingRequest(directory, request, is_left=True))
        return [request for _, request in left]

    def drop_left(self, sessions: Collection[str]) -> None:
        """Withdraw what no call in these sessions will ask again."""
        dropped = [p for p in self._pending.values() if p.is_left and p.request.session_id in sessions]
        for pending in dropped:
            del self._pending[pending.request.id]
        if dropped:
            self._withdraw(*dropped)

    def take_left(self, request: R) -> T | None:
        """For a call that need not ask any more: the answer that was given already, if any. The request is withdrawn."""
        pending = self._left_for(request)
        if pending is None:
            return None
        del self._pending[pending.request.id]
        if pending.answer.done():
            return pending.answer.result()
        self._withdraw(pending)
        return None

    def _left_for(self, request: R) -> PendingRequest[R, T] | None:
        return next((pending for pending in self._pending.values() if pending.is_left and pending.asks_the_same(request)), None)

    async def close(self) -> None:
        """What is left is withdrawn at the next start."""
        if self._removing is not None:
            self._removing.cancel()
            await asyncio.wait({self._removing})
