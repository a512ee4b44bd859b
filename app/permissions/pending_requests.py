"""Permission requests and questions that wait for the user's answer.

Each is a row while it waits, so that every client can list it. An answer is stored in the row, in the transaction with its
consequences: of several answers to one request exactly one is accepted, on whatever server. The caller is woken after the commit,
or finds, when it looks next, an answer that another server stored; then the row is deleted. An answer whose caller is killed
waits for the call that asks again.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import orjson
from pydantic import ValidationError

from app.events.bus.base import Event
from app.events.telemetry.observer import NOBODY, Observer
from app.record.engine import Connection, Database, StorageError
from app.record.repositories import session_rows, work_rows
from app.record.writer import Lease, Row, StaleLease, Tx, Writer
from app.schema.errors import Conflict, NotFound
from app.schema.permission import PermissionRequest, QuestionRequest
from app.util.tasks import FailureLog, TaskSet

log = logging.getLogger(__name__)

R = TypeVar("R", bound=PermissionRequest | QuestionRequest)

T = TypeVar("T")
"""The type of an answer."""

LeaseOfRun = Callable[[], Lease | None]
"""Gives the lease that holds the session now; one that refuses every write once this server has given the session up."""

RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0


class RequestNotPending(NotFound):
    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.tag = "QuestionNotFoundError" if request_id.startswith("que") else "PermissionNotFoundError"
        message = f"No request {request_id} is waiting: it was answered already, or its turn is over"
        super().__init__(message, requestID=request_id)


@dataclass(slots=True, eq=False)
class PendingRequest(Generic[R, T]):
    """`is_orphaned`: the server that asked is gone, and the tool call has not asked again yet."""

    directory: str
    request: R
    is_orphaned: bool = False
    lease: LeaseOfRun = lambda: None
    """The lease of the run that asks."""
    answer: asyncio.Future[T] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(frozen=True, slots=True)
class RequestKind(Generic[R, T]):
    """`name` is the value of the column `kind`. `asked` and `withdrawn` build an event from the directory and the request. `read`
    raises ValidationError. An answer's JSON is read by the version that wrote it, or a newer one."""

    name: str
    read: Callable[[str], R]
    read_answer: Callable[[str], T]
    asked: Callable[[str, R], Event]
    withdrawn: Callable[[str, R], Event]


@dataclass(frozen=True, slots=True)
class Resolution(Generic[T]):
    """An answer to one request, with the event that announces it. If the request is `unattended` its row is deleted at once, as
    no caller fetches the answer."""

    request_id: str
    event: Event
    answer: T
    unattended: bool = False


POLL_SECONDS = 0.25
"""The time between two looks for answers that another server has stored."""


class PendingRequests(Generic[R, T]):
    """The requests of one kind that this process waits for, and the orphans that it adopted from dead servers."""

    def __init__(self, kind: RequestKind[R, T], database: Database, writer: Writer, observer: Observer = NOBODY) -> None:
        self._kind = kind
        self._observer = observer
        self._database = database
        self._writer = writer
        self._pending: dict[str, PendingRequest[R, T]] = {}
        self._withdrawn: set[str] = set()
        """Withdrawn requests whose row is not deleted yet."""
        self._polling: asyncio.Task[None] | None = None
        self._tasks = TaskSet()

    def add(self, directory: str, request: R, lease: LeaseOfRun = lambda: None) -> PendingRequest[R, T]:
        """Call `wait` with the result at once. A request with the same content as an orphan continues under the orphan's id, so
        that a dialog that a client still shows stays valid."""
        pending = self._matching_orphan(request) or PendingRequest(directory, request)
        pending.lease = lease
        self._pending[pending.request.id] = pending
        return pending

    async def wait(self, pending: PendingRequest[R, T]) -> T:
        """Returns the stored answer. Withdraws the request when cancelled. Raises StorageError if the request cannot be
        stored."""
        try:
            if pending.is_orphaned:
                await self._ask_again(pending)
            else:
                await self._store(pending)
            if self._polling is None or self._polling.done():
                self._polling = self._tasks.start(self._poll_until_answered(), f"answers to {self._kind.name} requests")
            with self._observer.wait(self._kind.name):
                answer = await pending.answer
            await self._consume(pending)
            return answer
        except StaleLease:
            raise
        except BaseException:
            lease = pending.lease()
            if lease is None or not lease.is_abandoned:  # else this server has stopped: the one that resumes the turn waits
                self._withdraw(pending)
            raise
        finally:
            self._pending.pop(pending.request.id, None)

    async def put(self, directory: str, request: R) -> None:
        """Stores and announces an unattended request. Raises Conflict for an id that is in use."""
        await self._store(PendingRequest(directory, request))

    async def _store(self, pending: PendingRequest[R, T]) -> None:
        lease, request = pending.lease(), pending.request
        named = {"id": request.id, "kind": self._kind.name, "session_id": request.session_id, "directory": pending.directory}
        row = {**named, "body": request.wire_json().decode()}

        def store(tx: Tx) -> None:
            tx.require(lease)
            if work_rows.find_request(tx.connection, request.id):
                raise Conflict(f"There is a request {request.id} already: leave `id` out, or use another")
            tx.put(tx.sql.put_request, row)
            tx.announce(self._kind.asked(pending.directory, request))

        await self._writer.commit(store, request.session_id)

    async def _consume(self, pending: PendingRequest[R, T]) -> None:
        """The server that deletes a row acts on its answer: one that was frozen meanwhile finds that another has taken the
        session over, and raises StaleLease."""
        lease = pending.lease()

        def consume(tx: Tx) -> None:
            tx.require(lease)
            self._delete(tx, pending.request.id)

        await self._writer.commit(consume)

    def _delete(self, tx: Tx, request_id: str) -> None:
        tx.execute(tx.sql.delete_request, {"gone": request_id})

    async def _ask_again(self, pending: PendingRequest[R, T]) -> None:
        """Announces an orphan to this server's clients, unless an answer has been stored meanwhile."""
        pending.is_orphaned = False
        lease = pending.lease()

        def ask(tx: Tx) -> None:
            tx.require(lease)
            if work_rows.is_pending(tx.connection, pending.request.id):
                tx.announce(self._kind.asked(pending.directory, pending.request))

        await self._writer.commit(ask, pending.request.session_id)
        await self._poll_answers()

    async def _poll_until_answered(self) -> None:
        failures = FailureLog(log, f"looking for answers to {self._kind.name} requests")
        while self._pending:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self._poll_answers()
                failures.worked()
            except StorageError as error:
                failures.failed(error)

    async def _poll_answers(self) -> None:
        """Wakes the callers whose request was answered through another server."""
        waiting = [request_id for request_id, pending in self._pending.items() if not pending.answer.done()]
        for row in await self._database.read(lambda connection: work_rows.answered_requests(connection, waiting)):
            self._wake(row.id, self._kind.read_answer(row.answer))

    def _withdraw(self, pending: PendingRequest[R, T]) -> None:
        """Takes effect on this server at once. The row is deleted now or, if the database refuses, as soon as it accepts
        writes."""
        self._withdrawn.add(pending.request.id)
        self._tasks.start(self._remove(pending, self._post_removal(pending)), f"withdraw {pending.request.id}")

    def _post_removal(self, pending: PendingRequest[R, T]) -> asyncio.Future[None]:
        """Deletes the request's row. A request that was answered is announced as answered, not as withdrawn."""

        def delete(tx: Tx) -> None:
            if work_rows.is_pending(tx.connection, pending.request.id):
                tx.announce(self._kind.withdrawn(pending.directory, pending.request))
            self._delete(tx, pending.request.id)

        return self._writer.post(delete, pending.request.session_id)

    async def _remove(self, pending: PendingRequest[R, T], removed: asyncio.Future[None]) -> None:
        delay = RETRY_SECONDS
        await asyncio.wait({removed})
        while removed.exception() is not None:
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_RETRY_SECONDS)
            removed = self._post_removal(pending)
            await asyncio.wait({removed})
        self._withdrawn.discard(pending.request.id)

    async def find(self, request_id: str) -> PendingRequest[R, T]:
        """A waiting request, on whatever server. Raises RequestNotPending."""
        row = await self._database.read(lambda connection: work_rows.find_request(connection, request_id))
        is_waiting = row is not None and row.kind == self._kind.name and row.answer is None
        pending = next(self._read([row]), None) if is_waiting else None
        if pending is None:
            raise RequestNotPending(request_id)
        return pending

    def _read(self, rows: Sequence[Any]) -> Iterator[PendingRequest[R, T]]:
        """Without withdrawn requests, and without damaged ones, which cannot be answered."""
        for row in rows:
            try:
                request = self._kind.read(row.body)
            except ValidationError:
                log.error("skipped a damaged pending request: %.80r", row.body)
                continue
            if request.id not in self._withdrawn:
                yield PendingRequest(row.directory, request)

    async def find_in(self, session_id: str, request_id: str) -> PendingRequest[R, T]:
        """Raises RequestNotPending, also for a request of another session."""
        pending = await self.find(request_id)
        if pending.request.session_id != session_id:
            raise RequestNotPending(request_id)
        return pending

    async def require_visible(self, request_id: str, may_see: Callable[[str], bool]) -> None:
        """`may_see` is given the owner of the request's session. For requests of all kinds. Raises RequestNotPending."""

        def owner(connection: Connection) -> str | None:
            request = work_rows.find_request(connection, request_id)
            return session_rows.owners(connection, [request.session_id]).get(request.session_id) if request else None

        found = await self._database.read(owner)
        if found is None or not may_see(found):
            raise RequestNotPending(request_id)

    async def of_session(self, session_id: str) -> list[PendingRequest[R, T]]:
        """The session's waiting requests, on whatever server."""
        rows = await self._database.read(lambda connection: work_rows.session_requests(connection, self._kind.name, session_id))
        return list(self._read(rows))

    async def resolve(self, first: Resolution[T], others: Sequence[Resolution[T]] = (), approvals: Sequence[Row] = ()) -> None:
        """Stores an answer and `approvals` in one transaction, then wakes the waiting callers. Those of `others` that still wait
        are answered too. Raises RequestNotPending or StorageError; nothing has changed then."""

        def answer(tx: Tx) -> list[Resolution[T]]:
            answered = [each for each in (first, *others) if self._answer(tx, each)]
            if first not in answered:
                raise RequestNotPending(first.request_id)
            tx.put(tx.sql.put_approval, *approvals)
            return answered

        stored = self._writer.post(answer, first.event.session_id)
        # Shielded: a client that hangs up after the commit must not leave the caller waiting.
        await asyncio.shield(self._wake_when(stored))

    def _answer(self, tx: Tx, resolution: Resolution[T]) -> bool:
        answer = {"of_request": resolution.request_id, "new_answer": orjson.dumps(resolution.answer).decode()}
        answered = bool(tx.execute(tx.sql.answer_request, answer).rowcount)
        if answered:
            tx.announce(resolution.event)
        if answered and resolution.unattended:
            self._delete(tx, resolution.request_id)
        return answered

    async def _wake_when(self, stored: asyncio.Future[list[Resolution[T]]]) -> None:
        for resolution in await stored:
            self._wake(resolution.request_id, resolution.answer)

    def _wake(self, request_id: str, answer: T) -> None:
        pending = self._pending.get(request_id)
        if pending is not None and not pending.answer.done():
            pending.answer.set_result(answer)

    async def all(self, directory: str, owner: str | None = None) -> list[R]:
        """The directory's requests; with `owner`, only those of this user's sessions."""
        withdrawn = set(self._withdrawn)  # a row that was deleted, and forgotten here, during the read may be read
        rows = await self._database.read(
            lambda connection: work_rows.pending_requests(connection, self._kind.name, directory, owner)
        )
        return [pending.request for pending in self._read(rows) if pending.request.id not in withdrawn]

    async def adopt_orphans(self, sessions: Collection[str] | None = None) -> list[R]:
        """Takes over the requests of dead servers in `sessions`, or in all sessions without a lease. An answer to one is kept
        until the resumed tool call asks again."""
        rows = await self._database.read(lambda connection: work_rows.orphaned_requests(connection, self._kind.name, sessions))
        orphans = [pending for pending in self._read(rows) if not pending.request.unattended]
        for pending in orphans:
            pending.is_orphaned = True
            self._pending.setdefault(pending.request.id, pending)
        return [pending.request for pending in orphans]

    def withdraw_orphans(self, sessions: Collection[str]) -> None:
        """Withdraws the orphans of these sessions that no tool call will ask again."""
        for pending in list(self._pending.values()):
            if pending.is_orphaned and pending.request.session_id in sessions:
                del self._pending[pending.request.id]
                self._withdraw(pending)

    async def take_orphan(self, request: R) -> T | None:
        """For a tool call that no longer needs to ask: removes the matching orphan and returns its answer, if it has one."""
        pending = self._matching_orphan(request)
        if pending is None:
            return None
        await self._poll_answers()
        self._pending.pop(pending.request.id, None)
        if not pending.answer.done():
            self._withdraw(pending)
            return None
        await self._consume(pending)
        return pending.answer.result()

    def _matching_orphan(self, request: R) -> PendingRequest[R, T] | None:
        for pending in self._pending.values():
            if pending.is_orphaned and pending.request.wire() == {**request.wire(), "id": pending.request.id}:
                return pending
        return None

    async def close(self) -> None:
        """Rows that are not deleted yet are withdrawn at the next start."""
        await self._tasks.cancel()
