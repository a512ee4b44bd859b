"""Requests that wait for a person: kept in the database until they are answered or taken back, so that clients can always list
what is asked."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import orjson

from app.bus.base import Event
from app.storage import queries
from app.storage.engine import Database
from app.storage.statements import Statements
from app.storage.writer import Change, Writer

log = logging.getLogger(__name__)

T = TypeVar("T")
"""What an answer is."""

R = TypeVar("R")
"""What a request is."""


AskKey = tuple[str, str, str]
"""(session, call, permission): what a request was made for. The permission is empty for a question."""


def ask_key(body: Mapping[str, Any]) -> AskKey:
    return (body["sessionID"], (body.get("tool") or {}).get("callID", ""), body.get("permission", ""))


def _request(body: str) -> dict[str, Any] | None:
    """None for one that is damaged: nobody can answer it."""
    try:
        request: dict[str, Any] = orjson.loads(body)
        ask_key(request)
        return request if request["id"] else None
    except (ValueError, TypeError, KeyError, AttributeError):
        log.error("a request that waits for a person is damaged and left out: %.80r", body)
        return None


@dataclass(slots=True)
class Ask(Generic[R, T]):
    """`asked` announces it, `withdrawn` that whoever asked is gone."""

    id: str
    session_id: str
    directory: str
    request: R
    body: bytes
    asked: Event
    withdrawn: Event
    answer: asyncio.Future[T] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Asks(Generic[R, T]):
    def __init__(self, kind: str, database: Database, sql: Statements, writer: Writer) -> None:
        self._kind = kind
        self._database = database
        self._sql = sql
        self._writer = writer
        self._waiting: dict[str, Ask[R, T]] = {}
        self._left: dict[AskKey, str] = {}

    async def left_behind(self) -> dict[AskKey, str]:
        """Requests of a server that is gone, by what they were asked for, with their ids. Whoever asks the same again takes the
        request up under its id, so that a client's dialog stays good."""
        bodies = await self._database.read(lambda connection: queries.left_asks(connection, self._kind))
        requests = [request for body in bodies if (request := _request(body)) is not None]
        waiting = {ask_key(request): request["id"] for request in requests}
        self._left = {key: ask_id for key, ask_id in waiting.items() if ask_id not in self._waiting}
        return dict(self._left)

    async def drop_left(self, keep: Callable[[AskKey], bool]) -> None:
        """Take back what nobody will ask again."""
        gone = [ask_id for key, ask_id in self._left.items() if not keep(key)]
        self._left = {key: ask_id for key, ask_id in self._left.items() if keep(key)}
        if gone:
            await self._writer.commit(Change([(self._sql.delete_ask, [{"gone": ask_id} for ask_id in gone])]))

    def id_for(self, key: AskKey) -> str | None:
        """The id of the request that was left behind for the same thing; it is taken up by asking."""
        return self._left.pop(key, None)

    async def wait(self, ask: Ask[R, T]) -> T:
        """The answer, or the refusal raised. Cancelled, it takes the request back."""
        self._waiting[ask.id] = ask
        row = {
            "id": ask.id,
            "kind": self._kind,
            "session_id": ask.session_id,
            "directory": ask.directory,
            "body": ask.body.decode(),
        }
        try:
            await self._writer.commit(Change([(self._sql.put_ask, [row])], [ask.asked]))
            return await ask.answer
        except asyncio.CancelledError:
            await asyncio.shield(self._close(ask, ask.withdrawn))
            raise

    async def answer(self, ask: Ask[R, T], replied: Event, outcome: T | Exception) -> None:
        """Announce the reply, then let the one who asked go on."""
        if not await self._close(ask, replied) or ask.answer.done():
            return
        if isinstance(outcome, Exception):
            ask.answer.set_exception(outcome)
        else:
            ask.answer.set_result(outcome)

    def find(self, request_id: str) -> Ask[R, T] | None:
        return self._waiting.get(request_id)

    def of_session(self, session_id: str) -> list[Ask[R, T]]:
        return [ask for ask in self._waiting.values() if ask.session_id == session_id]

    async def all_json(self, directory: str) -> bytes:
        bodies = await self._database.read(lambda connection: queries.pending_asks(connection, self._kind, directory))
        return b"[%b]" % b",".join(body.encode() for body in bodies if _request(body) is not None)

    async def _close(self, ask: Ask[R, T], last: Event) -> bool:
        """False when it was closed already."""
        if self._waiting.pop(ask.id, None) is None:
            return False
        await self._writer.commit(Change([(self._sql.delete_ask, [{"gone": ask.id}])], [last]))
        return True
