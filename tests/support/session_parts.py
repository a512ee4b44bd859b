"""Sessions on a real database without the agent: store, services, and messages to put in them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from storage_parts import HeldDatabase, Storage, open_storage

from app.project.location import Location
from app.schema.message import AssistantMessage, AssistantTime, Message, MessagePath, MessageWithParts, UserMessage, UserTime
from app.schema.part import ModelRef, Part, TextPart
from app.schema.session import Session, SessionTime
from app.sessions.fork import Forks
from app.sessions.lease import Leases
from app.sessions.live import LiveSessions
from app.sessions.live_parts import LivePart
from app.sessions.rows import message_row, part_row
from app.sessions.service import SessionService
from app.sessions.session_tx import SessionTx
from app.sessions.store import Store
from app.sessions.usage import ProjectQuota, StepUsage

DIRECTORY = "/d"
PLACE = Location(DIRECTORY, "p", "/d", is_git=False)
TITLE_USAGE = StepUsage("prt_title", "title", ModelRef(provider_id="scripted", model_id="rules"))


def session(session_id: str = "ses_1", **fields: Any) -> Session:
    given = {"slug": "able-bay", "project_id": "p", "directory": DIRECTORY, "title": "T", "version": "1", **fields}
    return Session(id=session_id, time=SessionTime(created=1, updated=1), **given)


def user(message_id: str, session_id: str = "ses_1", **fields: Any) -> UserMessage:
    model = ModelRef(provider_id="scripted", model_id="rules")
    return UserMessage(id=message_id, session_id=session_id, time=UserTime(created=1), agent="build", model=model, **fields)


def assistant(message_id: str, parent_id: str, session_id: str = "ses_1", **fields: Any) -> AssistantMessage:
    place, time = MessagePath(cwd=DIRECTORY, root=DIRECTORY), AssistantTime(created=1, completed=2)
    given = {"time": time, "model_id": "rules", "provider_id": "scripted", "path": place, **fields}
    return AssistantMessage(id=message_id, session_id=session_id, parent_id=parent_id, mode="build", agent="build", **given)


def text_part(part_id: str, text: str = "", message_id: str = "msg_1", session_id: str = "ses_1") -> TextPart:
    return TextPart(id=part_id, session_id=session_id, message_id=message_id, text=text)


def putting(*values: Session | Message | Part | MessageWithParts) -> Callable[[SessionTx], None]:
    """A change of these, in this order."""

    def work(tx: SessionTx) -> None:
        for value in values:
            if isinstance(value, Session):
                tx.of(value.id).create(value)
            elif isinstance(value, MessageWithParts):
                tx.put_message(message_row(value.info))
                tx.put_parts(*map(part_row, value.parts))
            elif isinstance(value, UserMessage | AssistantMessage):
                tx.put_message(message_row(value))
            else:
                tx.put_parts(part_row(value))

    return work


def _parts(value: Session | Message | Part | MessageWithParts) -> Sequence[Part]:
    if isinstance(value, MessageWithParts):
        return value.parts
    return [] if isinstance(value, Session | UserMessage | AssistantMessage) else [value]


@dataclass
class Sessions:
    storage: Storage
    store: Store
    live: LiveSessions
    service: SessionService
    forks: Forks
    leases: Leases
    streaming: dict[str, LivePart] = field(default_factory=dict)

    @property
    def database(self) -> HeldDatabase:
        return self.storage.database

    @property
    def announced(self) -> list[dict[str, Any]]:
        """The events that were announced, as JSON."""
        return [orjson.loads(one.payload) for one in self.storage.bus.events]

    def announced_of(self, kind: str) -> list[dict[str, Any]]:
        """The properties of the announced events of one type."""
        return [event["properties"] for event in self.announced if event["type"] == kind]

    async def put(self, *values: Session | Message | Part | MessageWithParts, session_id: str = "ses_1") -> None:
        """In one change."""
        await asyncio.shield(self.post(*values, session_id=session_id))

    def post(self, *values: Session | Message | Part | MessageWithParts, session_id: str = "ses_1") -> asyncio.Future[None]:
        """The same, without waiting."""
        parts = [part for value in values for part in _parts(value)]
        return self.store.post_parts(session_id, DIRECTORY, putting(*values), parts=parts)

    def stream(self, part_id: str, text: str, message_id: str = "msg_1") -> LivePart:
        """More text of a part."""
        live = self.streaming.setdefault(part_id, LivePart(text_part(part_id, "", message_id), DIRECTORY))
        self.store.live.append(live, text)
        return live

    async def read(self, session_id: str = "ses_1") -> list[dict[str, Any]]:
        """All messages, as a client reads them."""
        return orjson.loads((await self.store.page_json(session_id, None)).body)

    async def message(self, message_id: str) -> MessageWithParts:
        """As it is stored."""
        await self.store.barrier()
        return await self.store.message("ses_1", message_id)

    async def close(self) -> None:
        self.database.gate.set()
        await self.store.barrier()
        await self.leases.close()
        self.database.close()


def more_sessions(storage: Storage) -> Sessions:
    """A server of its own on a database."""
    store = Store(storage.database, storage.writer, storage.publisher)
    leases = Leases(storage.database, storage.writer)
    live = LiveSessions(store, leases)
    forks = Forks(store, ProjectQuota(storage.database, 2**40), live)
    return Sessions(storage, store, live, SessionService(store, live), forks, leases)


async def open_sessions(path: Path) -> Sessions:
    opened = more_sessions(open_storage(path))
    await opened.put(session())
    opened.storage.bus.published.clear()
    return opened
