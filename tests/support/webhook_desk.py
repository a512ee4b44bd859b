"""A database with webhooks and a journal, a clock that jumps instead of waiting, and a receiver that only remembers."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage_parts import writing

from app.events.bus.base import Event
from app.events.bus.memory import MemoryBus
from app.record.engine import Database
from app.record.repositories import journal_rows, webhook_rows
from app.record.writer import Writer
from app.sessions.live_parts import SessionPublisher
from app.transfer.webhooks.message import SendResult, WebhookMessage
from app.transfer.webhooks.worker import WebhookOwners, WebhookWorker
from app.users.principal import OPERATOR
from app.users.tokens import ServerSecret
from app.users.users import Users
from app.util import clock

PATIENCE = 60.0
START = 1_700_000_000.0
SERVER = "server-a"


@dataclass
class JumpingClock:
    """Whoever sleeps moves it on."""

    seconds: float = START

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)

    def at(self) -> float:
        """Seconds since the start."""
        return round(self.seconds - START, 3)


@dataclass
class RememberingSender:
    """`answers` decides the status by the number of the attempt (from 0) and the message."""

    answers: Callable[[int, WebhookMessage], int] = lambda attempt, message: 204
    times: Callable[[], float] = lambda: 0.0
    sent: list[tuple[float, WebhookMessage]] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, url: str, secret: str, message: WebhookMessage) -> SendResult:
        status = self.answers(len(self.sent), message)
        self.sent.append((self.times(), message))
        self._news.set()
        await asyncio.sleep(0)
        return SendResult(clock.now_ms(), 1, status, None if status < 300 else f"it answered {status}")

    async def close(self) -> None:
        pass

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.sent) < count:
                self._news.clear()
                await self._news.wait()

    def bodies(self) -> list[Any]:
        return [json.loads(message.body) for _, message in self.sent]

    def ids(self) -> list[str]:
        return [message.id for _, message in self.sent]


@dataclass
class WebhookDesk:
    database: Database
    writer: Writer
    users: Users
    bus: MemoryBus
    owners: WebhookOwners
    sleep: Callable[[float], Awaitable[object]]

    async def add(self, **fields: Any) -> Any:
        """A webhook's row, claimed by SERVER."""
        whose = {"owner": "", "role": "admin", "created": clock.now_ms(), "server": SERVER, "cursor": 0}
        what = {"id": "whk_1", "url": "https://receiver.example/hook", "events": '["*"]', "secret": "unused", "id_key": "key"}
        row = {**what, **whose, **fields}
        await self.database.write(lambda connection: webhook_rows.add(connection, row))
        return await self.row(row["id"])

    async def row(self, webhook_id: str = "whk_1") -> Any:
        return await self.database.read(lambda connection: webhook_rows.find(connection, webhook_id))

    async def until_stored(self, cursor: int, webhook_id: str = "whk_1") -> Any:
        """The row."""
        async with asyncio.timeout(PATIENCE):
            while (row := await self.row(webhook_id)).cursor < cursor:
                await asyncio.sleep(0.005)
        return row

    async def deliveries(self, webhook_id: str = "whk_1") -> list[Any]:
        """The oldest first."""
        rows = await self.database.read(lambda connection: webhook_rows.deliveries(connection, webhook_id, 1000))
        return list(reversed(rows))

    async def announce(self, *names: str, session: str = "ses_1", owner: str = "", padding: int = 0) -> None:
        for name in names:
            properties = {"sessionID": session, "name": name, "padding": "x" * padding}
            payload = json.dumps({"type": "command.executed", "properties": properties}, separators=(",", ":"))
            event = Event("command.executed", payload.encode(), session_id=session, directory="/d", owner=owner)
            await self.writer.commit(writing(events=[event]))

    async def announced(self, kind: str) -> list[tuple[str | None, Any]]:
        """Owner and properties."""
        page = await self.database.read(lambda connection: journal_rows.journal_page(connection, 0, None, None, 10**9))
        events = [(row.owner, json.loads(row.payload)) for row in page.rows]
        return [(owner, event["properties"]) for owner, event in events if event["type"] == kind]

    def worker(self, row: Any, sender: Any, secret: str | None = "whsec_unused") -> WebhookWorker:
        return WebhookWorker(row, secret, sender, self.database, self.writer, self.owners, self.sleep)

    @asynccontextmanager
    async def working(self, row: Any, sender: Any, **options: Any) -> AsyncIterator["asyncio.Task[None]"]:
        worker = self.worker(row, sender, **options)
        self.bus.on_journaled.add(worker.wake)
        task = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(PATIENCE):
                yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            with suppress(Exception):
                await worker.store_progress()


@asynccontextmanager
async def webhook_desk(url: str, data_dir: Path, jumping: JumpingClock) -> AsyncIterator[WebhookDesk]:
    """On a migrated database."""
    database, bus = Database(url), MemoryBus()
    writer, users = Writer(database, SessionPublisher(bus).publish), Users(database)
    owners = WebhookOwners(users, ServerSecret("test", data_dir), lambda who, path: who is OPERATOR or path == "/d")
    try:
        yield WebhookDesk(database, writer, users, bus, owners, jumping.sleep)
    finally:
        await writer.barrier()
        database.close()
