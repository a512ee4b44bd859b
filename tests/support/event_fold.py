"""What a client knows that has read nothing but the event stream, from its beginning."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2


def new_part(values: dict[str, Any]) -> dict[str, Any]:
    """The part of which a delta is the first that is told."""
    return {"id": values["partID"], "type": values["partType"], values["field"]: ""}


@dataclass
class KnownMessage:
    info: dict[str, Any]
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def as_read(self) -> dict[str, Any]:
        return {"info": self.info, "parts": list(self.parts.values())}


@dataclass
class KnownSession:
    """`announced`: every message that was ever there, in the order in which the stream told of them first."""

    info: dict[str, Any] = field(default_factory=dict)
    messages: dict[str, KnownMessage] = field(default_factory=dict)
    announced: dict[str, dict[str, Any]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    removed_parts: set[str] = field(default_factory=set)
    status: str = "idle"
    todos: list[dict[str, Any]] = field(default_factory=list)
    diff: list[dict[str, Any]] = field(default_factory=list)


class EventFold:
    """Puts each event in its place. `wrong` are events that a client cannot place; `seen` are facts that were announced."""

    def __init__(self) -> None:
        self.sessions: dict[str, KnownSession] = {}
        self.deleted: set[str] = set()
        self.waiting: dict[str, dict[str, Any]] = {}
        """Permissions and questions that nobody has answered, by id."""
        self.replies: dict[str, list[str]] = {}
        self.returned: dict[str, str] = {}
        """Parts that were told of after they were removed, with their session."""
        self.seen: set[tuple[str, ...]] = set()
        self.wrong: list[str] = []
        self.history: dict[str, list[str]] = {}
        """By session: what came, in short."""

    def apply(self, event: dict[str, Any]) -> None:
        kind, values = event["type"], event["properties"]
        self._note(kind, values)
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, values)

    def _note(self, kind: str, values: dict[str, Any]) -> None:
        session_id, line = _session_of(values), _summary(kind, values)
        lines = self.history.setdefault(session_id, [])
        if not (line.startswith("message.part") and lines and lines[-1] == line):
            lines.append(line)

    def _session(self, values: dict[str, Any]) -> KnownSession | None:
        """None, and noted as wrong, of a session that is not there."""
        session_id = _session_of(values)
        session = self.sessions.get(session_id)
        if session is None:
            self.wrong.append(f"an event of {session_id}, which is not there")
        return session

    def _put_session(self, values: dict[str, Any]) -> None:
        info = values["info"]
        if info["id"] in self.deleted:
            self.wrong.append(f"{info['id']} is told of after it was deleted")
            return
        self.sessions.setdefault(info["id"], KnownSession()).info = info
        self.seen |= {("session", info["id"]), ("title", info["id"], info["title"])}

    def _delete_session(self, values: dict[str, Any]) -> None:
        session_id = values["info"]["id"]
        self.sessions.pop(session_id, None)
        self.deleted.add(session_id)
        self.waiting = {key: asked for key, asked in self.waiting.items() if asked["sessionID"] != session_id}

    def _put_message(self, values: dict[str, Any]) -> None:
        session, info = self._session(values), values["info"]
        if session is None:
            return
        if info["id"] in session.removed:
            if info["role"] == "assistant":
                self.wrong.append(f"message {info['id']} of {info['sessionID']} is told of after it was removed")
            session.removed.discard(info["id"])  # a client sent its message again
            session.announced.pop(info["id"], None)
        session.announced[info["id"]] = info
        session.messages.setdefault(info["id"], KnownMessage(info)).info = info

    def _remove_message(self, values: dict[str, Any]) -> None:
        session = self._session(values)
        if session is not None:
            session.messages.pop(values["messageID"], None)
            session.removed.add(values["messageID"])

    def _put_part(self, values: dict[str, Any]) -> None:
        part = values["part"]
        message = self._message(part)
        if message is not None:
            message.parts[part["id"]] = part
            self.seen.add(("part", part["id"], part.get("text", "")))

    def _grow_part(self, values: dict[str, Any]) -> None:
        message = self._message(values)
        if message is None:
            return
        part = message.parts.setdefault(values["partID"], new_part(values))
        part[values["field"]] += values["delta"]

    def _message(self, values: dict[str, Any]) -> KnownMessage | None:
        session = self._session(values)
        message = session.messages.get(values["messageID"]) if session else None
        if session and message is None:
            self.wrong.append(f"a part of message {values['messageID']} of {values['sessionID']}, which is not there")
        part_id = values.get("partID") or values["id"]
        if session and part_id in session.removed_parts:
            self.returned[part_id] = str(values["sessionID"])
        return message

    def _remove_part(self, values: dict[str, Any]) -> None:
        session = self._session(values)
        if session is not None:
            session.removed_parts.add(values["partID"])
            if values["messageID"] in session.messages:
                session.messages[values["messageID"]].parts.pop(values["partID"], None)

    def _set_status(self, values: dict[str, Any]) -> None:
        if values["sessionID"] in self.sessions:
            self.sessions[values["sessionID"]].status = values["status"]["type"]

    def _set_todos(self, values: dict[str, Any]) -> None:
        if session := self._session(values):
            session.todos = values["todos"]

    def _set_diff(self, values: dict[str, Any]) -> None:
        if session := self._session(values):
            session.diff = values["diff"]

    def _ask(self, values: dict[str, Any]) -> None:
        self.waiting[values["id"]] = values

    def _reply(self, values: dict[str, Any]) -> None:
        self.waiting.pop(values["requestID"], None)
        self.replies.setdefault(values["requestID"], []).append(values.get("reply", "answered"))


_HANDLERS = {
    "session.created": EventFold._put_session,
    "session.updated": EventFold._put_session,
    "session.deleted": EventFold._delete_session,
    "session.status": EventFold._set_status,
    "session.diff": EventFold._set_diff,
    "todo.updated": EventFold._set_todos,
    "message.updated": EventFold._put_message,
    "message.removed": EventFold._remove_message,
    "message.part.updated": EventFold._put_part,
    "message.part.delta": EventFold._grow_part,
    "message.part.removed": EventFold._remove_part,
    "permission.asked": EventFold._ask,
    "permission.replied": EventFold._reply,
    "question.asked": EventFold._ask,
    "question.replied": EventFold._reply,
    "question.rejected": EventFold._reply,
}


def _session_of(values: dict[str, Any]) -> str:
    info, part = values.get("info", {}), values.get("part", {})
    return str(values.get("sessionID") or info.get("sessionID") or part.get("sessionID") or info.get("id") or "")


def _summary(kind: str, values: dict[str, Any]) -> str:
    """The event in a line: what it is about and the state that it tells of."""
    what = values.get("info") or values.get("part") or values
    facts = [what.get(name) for name in ("role", "id", "messageID", "partID", "parentID", "requestID", "reply", "type", "title")]
    state = what.get("state", {}).get("status") or values.get("status", {}).get("type")
    done = "completed" if "completed" in what.get("time", {}) else None
    error = what.get("error", {}).get("name")
    revert = "reverted" if what.get("revert") else None
    return " ".join(str(fact) for fact in (kind, *facts, state, done, error, revert) if fact)


@asynccontextmanager
async def folding(client: httpx2.AsyncClient, query: str = "") -> AsyncIterator[EventFold]:
    """Follows GET /event until the block ends."""
    fold, connected = EventFold(), asyncio.Event()
    task = asyncio.create_task(_follow(client, query, fold, connected))
    try:
        async with asyncio.timeout(60):
            await connected.wait()
        yield fold
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _follow(client: httpx2.AsyncClient, query: str, fold: EventFold, connected: asyncio.Event) -> None:
    try:
        async with client.stream("GET", f"/event{query}", timeout=None) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    fold.apply(json.loads(line[5:]))
                    connected.set()
        fold.wrong.append("the server ended the stream")
    except Exception as error:
        fold.wrong.append(f"the stream broke: {error!r}")
        raise
