"""A store on a real database, with one session, and what it announces."""

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy.exc import OperationalError

from app.bus.base import Event, PartDelta
from app.project.location import Location
from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.session import Session
from app.session.sequencer import Sequencer
from app.session.service import new_session
from app.session.store import Store
from app.storage.engine import Database
from app.storage.statements import Statements
from app.storage.writer import Writer


@dataclass
class Announced:
    """A bus that only remembers."""

    events: list[dict[str, Any]] = field(default_factory=list)
    deltas: list[PartDelta] = field(default_factory=list)

    def publish(self, event: Event) -> None:
        self.events.append(orjson.loads(event.payload))

    def publish_delta(self, delta: PartDelta) -> None:
        self.deltas.append(delta)

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [event["properties"] for event in self.events if event["type"] == kind]


class FullDisk(Database):
    """Refuses to write while `is_full`."""

    is_full = False

    async def write(self, work: Any) -> Any:
        if self.is_full:
            raise OperationalError("COMMIT", {}, sqlite3.OperationalError("database or disk is full"))
        return await super().write(work)


@dataclass
class OpenStore:
    database: FullDisk
    sql: Statements
    sequencer: Sequencer
    writer: Writer
    store: Store
    announced: Announced
    location: Location
    session: Session

    async def put(self, message: MessageWithParts) -> AssistantMessage:
        """Store a message of the session; for answers, as `PartWriter` wants them."""
        info = message.info.model_copy(update={"session_id": self.session.id})
        change = self.store.change(self.session.id, self.location.directory)
        change.put_message(info)
        for part in message.parts:
            change.put_part(part.model_copy(update={"session_id": self.session.id}))
        await self.store.commit(change)
        return info  # type: ignore[return-value]

    async def read(self, message_id: str) -> MessageWithParts:
        await self.store.drain()
        return await self.store.message(self.session.id, message_id)

    async def close(self) -> None:
        await self.store.drain()
        self.database.close()


async def open_store(path: Path, directory: Path) -> OpenStore:
    database = FullDisk(f"sqlite:///{path}")
    sql, announced = Statements(database.dialect), Announced()
    sequencer = Sequencer(announced)
    writer = Writer(database, sql, sequencer)
    store = Store(database, sql, writer, sequencer)
    location = Location(str(directory), "global", "/", is_git=False)
    session = new_session(location, None)
    change = store.change(session.id, location.directory)
    change.create_session(session)
    await store.commit(change)
    return OpenStore(database, sql, sequencer, writer, store, announced, location, session)
