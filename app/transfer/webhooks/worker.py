"""Delivers one webhook: reads the journal from its cursor on, and sends one message after the other.

A message that is not accepted is sent again until it is, and those after it wait: the receiver gets all in the journal's order.
The cursor is stored after the accepted messages, so that a server that is killed, or whose webhook another one takes over, sends
some messages twice but loses none.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import orjson

from app.events.bus.base import Audience, Event, EventId
from app.record.engine import Connection, Database
from app.record.repositories import journal_rows, webhook_rows
from app.record.writer import Tx, Writer
from app.schema.event import EventServerResync, EventWebhookDisabled, WebhookRef
from app.transfer.webhooks.message import GONE, SendResult, WebhookMessage, WebhookSender, matches, message, message_id
from app.users.oidc import PREFIX as OIDC_PREFIX
from app.users.principal import OPERATOR, Principal, Role
from app.users.tokens import ServerSecret
from app.users.users import Users
from app.util import clock
from app.util.tasks import FailureLog

# When a message that was not accepted is sent again. Pure; times in epoch milliseconds.

FIRST_DELAY_MS = 5_000
MAX_DELAY_MS = 3_600_000
GIVE_UP_AFTER_MS = 24 * 3_600_000


def next_attempt(attempts: int, failed_since: int, now: int) -> int | None:
    """When to try again after `attempts` failures: the delay doubles up to an hour, the last attempt is a day after the first.
    None: no more."""
    end = failed_since + GIVE_UP_AFTER_MS
    if now >= end:
        return None
    delay = min(FIRST_DELAY_MS << min(attempts - 1, 30), MAX_DELAY_MS)
    return min(now + delay, end)


# A webhook is sent what its owner may see now, which is looked up with each message.


class WebhookEnds(Exception):
    """The webhook is sent nothing more; the message says why. `removes`: it is deleted, not switched off."""

    def __init__(self, reason: str, *, removes: bool = False) -> None:
        super().__init__(reason)
        self.removes = removes


class WebhookOwners:
    def __init__(self, users: Users, secret: ServerSecret, admits: Callable[[Principal, str], bool]) -> None:
        """`admits`: whether a principal may work in a directory."""
        self._users = users
        self._secret = secret
        self._admits = admits

    async def find(self, name: str) -> Principal | None:
        """At most a second old. A user of an identity provider who is not stored counts as a member: only their token could say
        more."""
        if name == OPERATOR.name:
            return OPERATOR
        if user := await self._users.get(name):
            return user.principal()
        return Principal(name, Role.MEMBER) if name.startswith(OIDC_PREFIX) else None

    async def require(self, webhook: Any) -> Principal:
        """Raises WebhookEnds if the owner is gone, or has another role than when the webhook was switched on."""
        principal = await self.find(webhook.owner)
        if principal is None:
            raise WebhookEnds("Its owner was removed.")
        if principal.role.value != webhook.role:
            raise WebhookEnds(f"The role of its owner was changed from {webhook.role} to {principal.role.value}.")
        return principal

    def may_receive(self, principal: Principal, event: Event) -> bool:
        if event.steers:
            return event.owner == principal.name
        if principal.may_see_all:
            return True
        cursors = self._secret.cursors(principal.name)
        return Audience(principal.name, lambda path: self._admits(principal, path), cursors).receives(event)

    def event_id(self, principal: Principal, event_id: EventId) -> bytes:
        """The id that the principal's event streams have."""
        return event_id.wire(None if principal.may_see_all else self._secret.cursors(principal.name))


log = logging.getLogger(__name__)

PAGE_BYTES = 256 * 1024
STORE_SECONDS = 0.25
"""The longest delay between an acceptance and its storing, while more is sent."""
STORE_SKIPPED = 500
"""How many events that a webhook does not want may lie between its cursor and the stored one."""
AFTER_FAILURE_SECONDS = 2.0


class ClaimLost(Exception):
    """Another server delivers the webhook, or it was removed."""


@dataclass(slots=True)
class DeliveryProgress:
    """How far the delivery is, as it is stored: see `WebhookRow`."""

    cursor: int
    attempts: int = 0
    failed_since: int | None = None
    retry_at: int | None = None


class WebhookWorker:
    """`run` returns when the webhook is switched off, removed, or delivered by another server."""

    def __init__(
        self,
        webhook: Any,
        secret: str | None,
        sender: WebhookSender,
        database: Database,
        writer: Writer,
        owners: WebhookOwners,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`webhook`: its row. `secret`: None if this server cannot decrypt it."""
        self._webhook = webhook
        self._secret = secret
        self._sender = sender
        self._database = database
        self._writer = writer
        self._owners = owners
        self._sleep = sleep
        self._patterns: list[str] = orjson.loads(webhook.events)
        self._at = DeliveryProgress(webhook.cursor, webhook.attempts, webhook.failed_since, webhook.retry_at)
        self._stored_cursor: int = webhook.cursor
        self._stored_at = time.monotonic()
        self._unlogged: list[dict[str, Any]] = []
        self._storing = asyncio.Lock()
        self._woken = asyncio.Event()
        self.revision: int = webhook.revision

    def wake(self) -> None:
        """To be called when there may be new events."""
        self._woken.set()

    async def run(self) -> None:
        failures = FailureLog(log, f"delivering webhook {self._webhook.id}")
        try:
            while True:
                self._woken.clear()
                try:
                    is_over = await self._deliver_or_end()
                    failures.worked()
                except Exception as error:  # noqa: BLE001  the database may answer again, and nothing else would deliver it
                    failures.failed(error)
                    await self._sleep(AFTER_FAILURE_SECONDS)
                    continue
                if is_over:
                    return
                await self._woken.wait()
        finally:
            await self._sender.close()

    async def store_progress(self) -> None:
        """Runs to completion even if the caller is cancelled: no delivery is logged twice. Raises ClaimLost, StorageError."""
        await asyncio.shield(self._store_progress())

    async def _store_progress(self) -> None:
        async with self._storing:
            values, deliveries, server = asdict(self._at), list(self._unlogged), self._webhook.server

            def store(connection: Connection) -> bool:
                return webhook_rows.put_progress(connection, self._webhook.id, server, values, deliveries)

            if not await self._database.write(store):
                raise ClaimLost
            del self._unlogged[: len(deliveries)]
            self._stored_cursor, self._stored_at = values["cursor"], time.monotonic()

    async def _deliver_or_end(self) -> bool:
        """Returns True if this server delivers nothing more."""
        try:
            await self._deliver_new()
            return False
        except WebhookEnds as end:
            await self._end(end)
        except ClaimLost:
            log.info("webhook %s is not delivered by this server any more", self._webhook.id)
        return True

    async def _deliver_new(self) -> None:
        """Delivers all that the journal has after the cursor."""
        is_last = False
        while not is_last:
            page = await self._next_page()
            if page.is_gap:
                await self._send_resync()
            for row in page.rows:
                await self._offer(row)
                self._at.cursor = row.seq
                if self._unlogged and time.monotonic() - self._stored_at > STORE_SECONDS:
                    await self.store_progress()
            self._at.cursor, is_last = page.upto, page.is_last
            if self._unlogged or page.is_gap or self._at.cursor - self._stored_cursor >= STORE_SKIPPED:
                await self.store_progress()

    async def _next_page(self) -> journal_rows.JournalPage:
        owner = (await self._principal()).visible_owner
        wanted = partial(journal_rows.journal_page, directory=self._webhook.directory, owner=owner, max_bytes=PAGE_BYTES)
        return await self._database.read(partial(wanted, cursor=self._at.cursor))

    async def _send_resync(self) -> None:
        """Sent whichever events the webhook wants: they may be among those that it missed."""
        kind = EventServerResync().type
        name = message_id(self._webhook.id_key, f"gap behind {self._at.cursor}")
        event_id = await self._event_id(EventId.behind(self._at.cursor))
        await self._deliver(message(name, kind, clock.now_ms(), self._webhook.directory, {}, event_id))

    async def _offer(self, row: Any) -> None:
        event = journal_rows.event_of(row)
        if not any(matches(pattern, event.type) for pattern in self._patterns):
            return
        if self._webhook.session_id not in (None, event.session_id):
            return
        name, properties = message_id(self._webhook.id_key, row.seq), orjson.loads(event.properties)
        event_id = await self._event_id(event.id())
        await self._deliver(message(name, event.type, row.time, row.directory, properties, event_id), event)

    async def _deliver(self, content: WebhookMessage, event: Event | None = None) -> None:
        """Returns when the message is accepted, or the owner may not see its `event` any more. Raises WebhookEnds."""
        while True:
            if self._at.retry_at is not None and (wait := self._at.retry_at - clock.now_ms()) > 0:
                await self._sleep(min(wait, MAX_DELAY_MS) / 1000)  # the clock may have been wrong by years
            principal = await self._principal()
            if event is not None and not self._owners.may_receive(principal, event):
                return
            if self._secret is None:
                raise WebhookEnds("Its secret is encrypted with a key that the server does not have: give it another one.")
            result = await self._sender.send(self._webhook.url, self._secret, content)
            self._unlogged.append(delivery_row(content, result, self._at.attempts + 1))
            if result.status == GONE:
                raise WebhookEnds("The receiver answered 410 Gone.", removes=True)
            if result.error is None:
                self._at = DeliveryProgress(self._at.cursor)
                return
            await self._note_failure(result)

    async def _event_id(self, event_id: EventId) -> bytes:
        return self._owners.event_id(await self._principal(), event_id)

    async def _principal(self) -> Any:
        return await self._owners.require(self._webhook)

    async def _note_failure(self, result: SendResult) -> None:
        at = self._at
        at.attempts += 1
        at.failed_since = at.failed_since if at.failed_since is not None else result.time
        at.retry_at = next_attempt(at.attempts, at.failed_since, clock.now_ms())
        if at.retry_at is None:
            raise WebhookEnds(f"No message was accepted for a day, in {at.attempts} attempts; of the last one: {result.error}.")
        if at.attempts == 1:
            log.warning("webhook %s: a message was not accepted, and is sent again", self._webhook.id)
        await self.store_progress()

    async def _end(self, end: WebhookEnds) -> None:
        """Announces the end to the owner by an event. Does nothing if the webhook was changed or taken over meanwhile."""
        webhook, deliveries = self._webhook, list(self._unlogged)
        reference = WebhookRef(webhook_id=webhook.id, url=webhook.url, reason=str(end), removed=end.removes)
        announced = Event.of(EventWebhookDisabled(properties=reference), webhook.directory).stored(webhook.owner, None)
        values = {**asdict(self._at), "retry_at": None}

        def switch_off(tx: Tx) -> None:
            if end.removes:
                ended = webhook_rows.remove_unchanged(tx.connection, webhook)
            else:
                ended = webhook_rows.put_progress(tx.connection, webhook.id, webhook.server, values, deliveries)
                ended = ended and webhook_rows.switch_off(tx.connection, webhook, str(end))
            if ended:
                tx.announce(announced)

        await self._writer.commit(switch_off)
        log.warning("webhook %s was %s: %s", webhook.id, "removed" if end.removes else "switched off", end)


def delivery_row(content: WebhookMessage, result: SendResult, attempt: int) -> dict[str, Any]:
    return {"message_id": content.id, "type": content.type, "attempt": attempt, **asdict(result)}
