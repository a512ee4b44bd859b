"""Decides which webhooks this server delivers: it claims each enabled one that no living server has claimed.

A claim holds as long as its server lives. It is written with the webhook's cursor, so that of two servers that both believe to
have it only one can store what it delivered.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from app.events.bus.memory import MemoryBus
from app.record.engine import Database, StorageError
from app.record.repositories import journal_rows, webhook_rows
from app.sessions.replicas import Replicas
from app.transfer.webhooks.worker import ClaimLost, WebhookWorker
from app.util.tasks import FailureLog

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0


class WebhookDispatcher:
    """`server`: this one's name. `is_shared`: other servers may add webhooks, or die. A server that is not shared and has no
    webhooks looks for nothing."""

    def __init__(
        self,
        database: Database,
        bus: MemoryBus,
        replicas: Replicas,
        server: str,
        make_worker: Callable[[Any], WebhookWorker],
        *,
        is_shared: bool,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._database = database
        self._bus = bus
        self._replicas = replicas
        self._server = server
        self._make_worker = make_worker
        self._is_shared = is_shared
        self._poll_seconds = poll_seconds
        self._workers: dict[str, tuple[WebhookWorker, asyncio.Task[None]]] = {}
        self._head = 0
        """The journal's newest sequence at the last look, as the bus may not carry events of other servers."""
        self._poll_now = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._polling = asyncio.create_task(self._keep_polling(), name="poll webhooks")

    def changed(self) -> None:
        """A webhook was added, changed or removed here."""
        self._poll_now.set()

    async def stop(self) -> None:
        """Messages that are on their way are given up, and sent again by the server that delivers these webhooks next."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait({self._polling})
        if not self._workers:
            return
        for webhook_id in list(self._workers):
            await self._stop(webhook_id)
        with suppress(StorageError):  # the others see that this server is gone
            await self._database.write(partial(webhook_rows.release, server=self._server))

    async def _keep_polling(self) -> None:
        failures = FailureLog(log, "looking for webhooks")
        while True:
            self._poll_now.clear()
            try:
                has_webhooks = await self._poll()
                failures.worked()
            except Exception as error:  # noqa: BLE001  the next look may succeed
                has_webhooks = True
                failures.failed(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_seconds if has_webhooks or self._is_shared else None):
                    await self._poll_now.wait()

    async def _poll(self) -> bool:
        """Returns whether there are webhooks."""
        rows, head = await self._database.read(lambda c: (webhook_rows.all_of(c), journal_rows.newest_seq(c)))
        wanted = {row.id: row for row in rows if row.enabled}
        for row in await self._unclaimed(list(wanted.values())):
            if await self._database.write(partial(webhook_rows.claim, webhook_id=row.id, before=row.server, server=self._server)):
                self._poll_now.set()
        await self._stop_outdated(wanted)
        for row in wanted.values():
            if row.server == self._server and row.id not in self._workers:
                worker = self._make_worker(row)
                self._workers[row.id] = worker, asyncio.create_task(worker.run(), name=f"webhook {row.id}")
                self._bus.on_journaled.add(worker.wake)
        if head != self._head:
            self._head = head
            for worker, _ in self._workers.values():
                worker.wake()
        return bool(rows)

    async def _unclaimed(self, rows: Sequence[Any]) -> list[Any]:
        others = {row.server for row in rows} - {"", self._server}
        living = {each.id for each in await self._replicas.all() if each.alive} if others else set()
        return [row for row in rows if row.server != self._server and row.server not in living]

    async def _stop_outdated(self, wanted: dict[str, Any]) -> None:
        """A changed webhook begins again with the next look, which reads the stored progress."""
        for webhook_id, (worker, task) in list(self._workers.items()):
            row = wanted.get(webhook_id)
            if row is None or row.server != self._server or row.revision != worker.revision or task.done():
                await self._stop(webhook_id)
                wanted.pop(webhook_id, None)
                self._poll_now.set()

    async def _stop(self, webhook_id: str) -> None:
        worker, task = self._workers.pop(webhook_id)
        self._bus.on_journaled.discard(worker.wake)
        task.cancel()
        await asyncio.wait({task})
        with suppress(ClaimLost, StorageError):
            await worker.store_progress()
