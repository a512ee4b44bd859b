"""A database with its writer and a listener that remembers; plain rows to put in it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.sql.base import Executable

from app.events.bus.base import Event, PartDelta
from app.record.engine import Database, StorageError
from app.record.statements import Put, Statements, statements
from app.record.tables import LEASE
from app.record.writer import Chain, Lease, Tx, Work, Writer
from app.sessions.live_parts import SessionPublisher
from app.util import clock

T = TypeVar("T")


@dataclass
class RecordingBus:
    """A bus that keeps all that is published, in order."""

    delta_listeners = ("the test",)
    published: list[Event | PartDelta] = field(default_factory=list)

    def publish(self, event: Event) -> None:
        self.published.append(event)

    def publish_delta(self, delta: PartDelta) -> None:
        self.published.append(delta)

    @property
    def order(self) -> list[str]:
        return [item.payload.decode() if isinstance(item, Event) else item.text for item in self.published]

    @property
    def deltas(self) -> list[PartDelta]:
        return [item for item in self.published if isinstance(item, PartDelta)]

    @property
    def events(self) -> list[Event]:
        return [item for item in self.published if isinstance(item, Event)]


class HeldDatabase(Database):
    """Counts transactions that write, holds them back until `gate` is set, and refuses them while `full`."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.gate = asyncio.Event()
        self.gate.set()
        self.writes = 0
        self.full = False

    async def write(self, work: Any) -> Any:
        await self.gate.wait()
        if self.full:
            raise StorageError("database or disk is full")
        self.writes += 1
        return await super().write(work)


@dataclass
class Storage:
    database: HeldDatabase
    sql: Statements
    bus: RecordingBus
    publisher: SessionPublisher
    writer: Writer

    def post(self, work: Work[T], session_id: str = "ses_1", chain: Chain | None = None) -> asyncio.Future[T]:
        return self.writer.post(work, session_id, chain)

    def delta(self, delta: PartDelta, chain: Chain | None = None) -> None:
        """Announced behind the changes of its session."""
        self.writer.behind(delta.session_id, lambda: self.publisher.publish_delta(delta), chain)

    def putting(self, *, events: Sequence[Event] = (), lease: Lease | None = None, **rows: list[dict[str, Any]]) -> Work[None]:
        """A change of these rows: `session=[row…], message=[…]`, in this order."""
        writes = [(getattr(self.sql, f"put_{kind}"), of_kind) for kind, of_kind in rows.items()]
        return writing(*writes, events=events, lease=lease)

    async def put(self, **rows: list[dict[str, Any]]) -> None:
        await self.writer.commit(self.putting(**rows))

    async def count(self, table: Any) -> int:
        return len(await self.rows(table))

    async def rows(self, table: Any) -> list[Any]:
        return await self.database.read(lambda connection: list(connection.execute(table.select()).all()))


def open_storage(path: Path) -> Storage:
    return open_storage_at(f"sqlite:///{path}")


def open_storage_at(url: str) -> Storage:
    database = HeldDatabase(url)
    sql, bus = statements(database.dialect), RecordingBus()
    publisher = SessionPublisher(bus)
    return Storage(database, sql, bus, publisher, Writer(database, publisher.publish))


def put_lease(connection: Connection, session_id: str, owner: str, generation: int) -> None:
    """Whoever holds it."""
    connection.execute(LEASE.delete().where(LEASE.c.session_id == session_id))
    row = {"session_id": session_id, "owner": owner, "generation": generation, "heartbeat": clock.now_ms()}
    connection.execute(LEASE.insert(), [row])


def session_row(session_id: str = "ses_1", **columns: Any) -> dict[str, Any]:
    row = {"id": session_id, "project_id": "p", "directory": "/d", "parent_id": None, "title_folded": "t", "updated": 1}
    return {**row, "body": f'{{"id":"{session_id}"}}', **columns}


def message_row(message_id: str, session_id: str = "ses_1", **columns: Any) -> dict[str, Any]:
    row = {"id": message_id, "session_id": session_id, "role": "user", "parent_id": None, "open": False, "boundary": False}
    return {**row, "input_hash": None, "body": "{}", "live_body": None, **columns}


def part_row(part_id: str, message_id: str = "msg_1", session_id: str = "ses_1", **columns: Any) -> dict[str, Any]:
    row = {"id": part_id, "message_id": message_id, "session_id": session_id, "type": "text", "body": "{}"}
    return {**row, "live_body": None, "snapshot": None, **columns}


def event(name: str, session_id: str | None = "ses_1", *, journaled: bool = True, directory: str | None = "/d") -> Event:
    return Event(name, name.encode(), session_id=session_id, directory=directory, journaled=journaled)


def delta(text: str, session_id: str = "ses_1", part_id: str = "prt_1", size: int = 0, directory: str = "/d") -> PartDelta:
    return PartDelta(directory, session_id, "msg_1", part_id, text, size, lambda: b"{}")


def writing(
    *writes: tuple[Put | Executable, Sequence[Mapping[str, Any]]], events: Sequence[Event] = (), lease: Lease | None = None
) -> Work[None]:
    """A change of these rows, in this order."""

    def work(tx: Tx) -> None:
        tx.require(lease)
        for statement, rows in writes:
            if isinstance(statement, Put):
                tx.put(statement, *rows)
            else:
                tx.execute(statement, rows)
        for each in events:
            tx.announce(each)

    return work


def saying(*names: str, session_id: str | None = "ses_1", then: Callable[[Tx], None] = lambda tx: None) -> Work[None]:
    """A change that writes nothing but its events, and does `then` behind them."""

    def work(tx: Tx) -> None:
        for name in names:
            tx.announce(event(name, session_id))
        then(tx)

    return work
