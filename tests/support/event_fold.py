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
        match kind:
            case "session.created" | "session.updated":
                self._put_session(values["info"])
            case "session.deleted":
                self._delete_session(values["info"]["id"])
            case "session.status" if values["sessionID"] in self.sessions:
                self.sessions[values["sessionID"]].status = values["status"]["type"]
            case "message.part.updated" | "message.part.delta":
                self._put_part(values)
            case "session.diff" | "todo.updated" | "message.updated" | "message.removed" | "message.part.removed":
                if session := self._session(values):
                    self._change(session, kind, values)
            case "permission.asked" | "question.asked":
                self.waiting[values["id"]] = values
            case "permission.replied" | "question.replied" | "question.rejected":
                self.waiting.pop(values["requestID"], None)
                self.replies.setdefault(values["requestID"], []).append(values.get("reply", "answered"))

    def _change(self, session: KnownSession, kind: str, values: dict[str, Any]) -> None:
        match kind:
            case "session.diff":
                session.diff = values["diff"]
            case "todo.updated":
                session.todos = values["todos"]
            case "message.updated":
                self._put_message(session, values["info"])
            case "message.removed":
                session.messages.pop(values["messageID"], None)
                session.removed.add(values["messageID"])
            case "message.part.removed":
                session.removed_parts.add(values["partID"])
                if message := session.messages.get(values["messageID"]):
                    message.parts.pop(values["partID"], None)

    def _put_part(self, values: dict[str, Any]) -> None:
        part = values.get("part")
        message = self._message(part or values)
        if message and part:
            message.parts[part["id"]] = part
            self.seen.add(("part", part["id"], part.get("text", "")))
        elif message:
            message.parts.setdefault(values["partID"], new_part(values))[values["field"]] += values["delta"]

    def _delete_session(self, session_id: str) -> None:
        self.sessions.pop(session_id, None)
        self.deleted.add(session_id)
        self.waiting = {key: asked for key, asked in self.waiting.items() if asked["sessionID"] != session_id}

    def _note(self, kind: str, values: dict[str, Any]) -> None:
        line, lines = _summary(kind, values), self.history.setdefault(_session_of(values), [])
        if not (line.startswith("message.part") and lines and lines[-1] == line):
            lines.append(line)

    def _session(self, values: dict[str, Any]) -> KnownSession | None:
        """None, and noted as wrong, of a session that is not there."""
        session_id = _session_of(values)
        session = self.sessions.get(session_id)
        if session is None:
            self.wrong.append(f"an event of {session_id}, which is not there")
        return session

    def _put_session(self, info: dict[str, Any]) -> None:
        if info["id"] in self.deleted:
            self.wrong.append(f"{info['id']} is told of after it was deleted")
            return
        self.sessions.setdefault(info["id"], KnownSession()).info = info
        self.seen |= {("session", info["id"]), ("title", info["id"], info["title"])}

    def _put_message(self, session: KnownSession, info: dict[str, Any]) -> None:
        if info["id"] in session.removed:
            if info["role"] == "assistant":
                self.wrong.append(f"message {info['id']} of {info['sessionID']} is told of after it was removed")
            session.removed.discard(info["id"])  # a client sent its message again
            session.announced.pop(info["id"], None)
        session.announced[info["id"]] = info
        session.messages.setdefault(info["id"], KnownMessage(info)).info = info

    def _message(self, values: dict[str, Any]) -> KnownMessage | None:
        session = self._session(values)
        message = session.messages.get(values["messageID"]) if session else None
        if session and message is None:
            self.wrong.append(f"a part of message {values['messageID']} of {values['sessionID']}, which is not there")
        part_id = values.get("partID") or values["id"]
        if session and part_id in session.removed_parts:
            self.returned[part_id] = str(values["sessionID"])
        return message


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
