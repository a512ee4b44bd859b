"""A read shows what was announced, in the order of the announcements: random changes of several sessions, in random batches."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from long_form import LONG
from session_parts import DIRECTORY, PLACE, Sessions, assistant, open_sessions, session, text_part, user
from storage_parts import event

from app.schema.errors import Conflict
from app.session.change import SessionChange
from app.storage.repositories.session_rows import SessionFilter
from app.storage.tables import PENDING_REQUEST
from app.storage.writer import Change

KINDS = [
    "session",
    "rename",
    "delete session",
    "prompt",
    "answer",
    "prompt",
    "answer",
    "message again",
    "delete message",
    "part",
    "part",
    "part again",
    "delete part",
    "fork",
    "ask",
    "reply",
    "refused",
]
STEPS = st.tuples(st.sampled_from(KINDS), st.integers(0, 7), st.integers(0, 7))
BATCHES = st.lists(st.lists(STEPS, min_size=1, max_size=12), min_size=1, max_size=4)


class Client:
    """What somebody knows who has read nothing and heard every event: dictionaries in the order of their events."""

    def __init__(self) -> None:
        self.sessions: dict[str, Any] = {"ses_1": None}
        self.messages: dict[str, dict[str, Any]] = {}
        self.parts: dict[str, dict[str, Any]] = {}
        self.asks: dict[str, Any] = {}

    def hear(self, event: dict[str, Any]) -> None:
        properties = event["properties"]
        match event["type"]:
            case "session.created" | "session.updated":
                self.sessions[properties["info"]["id"]] = properties["info"]
            case "session.deleted":
                self._forget(properties["info"]["id"])
            case "message.updated":
                info = properties["info"]
                self.messages.setdefault(info["sessionID"], {})[info["id"]] = info
            case "message.removed":
                del self.messages[properties["sessionID"]][properties["messageID"]]
                self.parts.pop(properties["messageID"], None)
            case "message.part.updated":
                part = properties["part"]
                self.parts.setdefault(part["messageID"], {})[part["id"]] = part
            case "message.part.removed":
                del self.parts[properties["messageID"]][properties["partID"]]
            case "permission.asked":
                self.asks[properties["id"]] = properties
            case "permission.replied":
                del self.asks[properties["requestID"]]

    def _forget(self, session_id: str) -> None:
        del self.sessions[session_id]
        self.messages.pop(session_id, None)
        self.asks = {key: ask for key, ask in self.asks.items() if ask["sessionID"] != session_id}

    def read(self, session_id: str) -> list[dict[str, Any]]:
        messages = self.messages.get(session_id, {})
        return [{"info": info, "parts": list(self.parts.get(key, {}).values())} for key, info in messages.items()]


class Poster:
    """Posts one random change after the other without waiting, and knows what stands when all that was posted is stored."""

    def __init__(self, sessions: Sessions) -> None:
        self._on = sessions
        self._count = 0
        self._sessions = {"ses_1": "ses_1"}
        self._messages: dict[str, Any] = {}
        self._parts: dict[str, Any] = {}
        self._asks: dict[str, str] = {}

    def post(self, kind: str, which: int, other: int) -> None:
        self._count += 1
        step: Callable[[int, int], None] = getattr(self, "_" + kind.replace(" ", "_"))
        step(which, other)

    def _new(self, kind: str, which: int) -> str:
        """Neither ascending nor descending: an id tells nothing of the order."""
        return f"{kind}_{which}{self._count:04}"

    def _change(self, session_id: str, build: Callable[[SessionChange], None]) -> None:
        change = self._on.store.change(session_id, DIRECTORY)
        build(change)
        self._on.store.post(change)

    def _session(self, which: int, other: int) -> None:
        parent = _one(self._sessions, other) if other % 2 else None
        created = session(self._new("ses", which), parent_id=parent)
        self._sessions[created.id] = created.id
        self._change(created.id, lambda change: change.create_session(created))

    def _rename(self, which: int, other: int) -> None:
        if session_id := _one(self._sessions, which):
            self._change(session_id, lambda change: change.update_session(session(session_id, title=f"T{other}")))

    def _delete_session(self, which: int, _other: int) -> None:
        if session_id := _one(self._sessions, which):
            del self._sessions[session_id]
            for values in (self._messages, self._parts):
                for key in [key for key, value in values.items() if value.session_id == session_id]:
                    del values[key]
            self._asks = {ask: owner for ask, owner in self._asks.items() if owner != session_id}
            self._change(session_id, lambda change: change.delete_session(session(session_id)))

    def _prompt(self, which: int, other: int) -> None:
        if session_id := _one(self._sessions, which):
            self._put_message(user(self._new("msg", other), session_id))

    def _answer(self, which: int, other: int) -> None:
        if session_id := _one(self._sessions, which):
            self._put_message(assistant(self._new("msg", other), "msg_0", session_id))

    def _message_again(self, which: int, other: int) -> None:
        if message := _one(self._messages, which):
            self._put_message(message.model_copy(update={"agent": f"agent {other}"}))

    def _put_message(self, message: Any) -> None:
        self._messages[message.id] = message
        self._change(message.session_id, lambda change: change.put_message(message))

    def _delete_message(self, which: int, _other: int) -> None:
        if message := _one(self._messages, which):
            del self._messages[message.id]
            self._parts = {key: part for key, part in self._parts.items() if part.message_id != message.id}
            self._change(message.session_id, lambda change: change.remove_message(message.id))

    def _part(self, which: int, other: int) -> None:
        if message := _one(self._messages, which):
            self._put_part(text_part(self._new("prt", other), "new", message.id, message.session_id))

    def _part_again(self, which: int, other: int) -> None:
        if part := _one(self._parts, which):
            self._put_part(part.model_copy(update={"text": f"again {other}"}))

    def _put_part(self, part: Any) -> None:
        self._parts[part.id] = part
        self._change(part.session_id, lambda change: change.put_part(part))

    def _delete_part(self, which: int, _other: int) -> None:
        if part := _one(self._parts, which):
            del self._parts[part.id]
            self._change(part.session_id, lambda change: change.remove_part(part.message_id, part.id))

    def _fork(self, which: int, other: int) -> None:
        """Of what is stored and what is not yet."""
        if source := _one(self._sessions, which):
            created = session(self._new("ses", other))
            self._sessions[created.id] = created.id
            self._change(created.id, lambda change: self._copy(change, source, created))

    def _copy(self, change: SessionChange, source: str, created: Any) -> None:
        new = {"session_id": created.id}
        messages = [m.model_copy(update={**new, "id": f"{m.id}f{self._count}"}) for m in self._of(self._messages, source)]
        parts = [
            p.model_copy(update={**new, "id": f"{p.id}f{self._count}", "message_id": f"{p.message_id}f{self._count}"})
            for p in self._of(self._parts, source)
        ]
        self._messages |= {message.id: message for message in messages}
        self._parts |= {part.id: part for part in parts}
        change.create_session(created)
        for message in messages:
            change.put_message(message)
        for part in parts:
            change.put_part(part)

    def _of(self, values: dict[str, Any], session_id: str) -> list[Any]:
        return [value for value in values.values() if value.session_id == session_id]

    def _ask(self, which: int, other: int) -> None:
        if session_id := _one(self._sessions, which):
            ask_id = self._new("per", other)
            self._asks[ask_id] = session_id
            body = f'{{"id":"{ask_id}","sessionID":"{session_id}"}}'
            row = {"id": ask_id, "kind": "permission", "session_id": session_id, "directory": DIRECTORY, "body": body}
            announced = event(f'{{"type":"permission.asked","properties":{body}}}', session_id)
            self._on.storage.writer.post(Change([(self._on.storage.sql.put_request, [row])], [announced]))

    def _reply(self, which: int, _other: int) -> None:
        if ask_id := _one({ask: ask for ask in self._asks}, which):
            session_id = self._asks.pop(ask_id)
            announced = event(f'{{"type":"permission.replied","properties":{{"requestID":"{ask_id}"}}}}', session_id)
            self._on.storage.writer.post(Change([(self._on.storage.sql.delete_request, [{"gone": ask_id}])], [announced]))

    def _refused(self, which: int, other: int) -> None:
        """It makes every change of its batch a transaction of its own."""
        if session_id := _one(self._sessions, which):
            change = self._on.store.change(session_id, DIRECTORY)
            change.put_message(user(self._new("msg", other), session_id))
            change.change.work = _refuse
            self._on.store.post(change)


def _refuse(_connection: object) -> None:
    raise Conflict("refused")


def _one(values: dict[str, Any], which: int) -> Any:
    return [*values.values()][which % len(values)] if values else None


async def compare(path: Path, batches: list[list[tuple[str, int, int]]]) -> None:
    sessions = await open_sessions(path)
    try:
        poster, client = Poster(sessions), Client()
        for batch in batches:
            for step in batch:
                poster.post(*step)
            await sessions.store.drain()
        for event in sessions.announced:
            client.hear(event)
        for session_id in client.sessions:
            assert await sessions.read(session_id) == client.read(session_id)
        listed = orjson.loads((await sessions.store.sessions_page(SessionFilter(project_id=PLACE.project_id))).body)
        assert [found["id"] for found in listed] == [*client.sessions][::-1]
        asks = await sessions.storage.rows(PENDING_REQUEST)
        assert [row.id for row in sorted(asks, key=lambda row: row.seq)] == [*client.asks]
    finally:
        await sessions.close()


@given(BATCHES)
@settings(deadline=None, max_examples=60 if LONG else 20)
def test_a_read_has_the_order_of_the_announcements(migrated_database: Path, batches: list[list[tuple[str, int, int]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "opensession.db"
        shutil.copy(migrated_database, path)
        asyncio.run(compare(path, batches))
