"""The webhooks that clients make, see, change and remove: a user their own, admins all."""

import asyncio
import secrets as random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from app.record.engine import Connection, Database
from app.record.repositories import journal_rows, webhook_rows
from app.record.writer import Writer
from app.schema.errors import BadRequest, Conflict, NotFound, TooMany
from app.schema.webhook import NewWebhook, Webhook, WebhookDelivery, WebhookFailure, WebhookInput, WebhookPatch, WebhookTime
from app.tools.web import AddressDenied, PinnedRequests
from app.transfer.webhooks.message import WebhookSender, is_secret, message, message_id, new_secret, problem
from app.transfer.webhooks.worker import WebhookOwners, WebhookWorker, delivery_row
from app.users.principal import Principal, Role
from app.users.tokens import ServerSecret
from app.util import clock, ids

RESOLVE_SECONDS = 5.0
TEST = "webhook.test"

_WITHOUT_FAILURE: Mapping[str, Any] = {"attempts": 0, "failed_since": None, "retry_at": None, "disabled_reason": None}


class TooManyWebhooks(TooMany):
    name = "TooManyWebhooksError"

    def __init__(self, most: int) -> None:
        super().__init__(f"You have {most} webhooks already (OPENSESSION_MAX_WEBHOOKS). Remove one first.")


class Webhooks:
    def __init__(
        self,
        database: Database,
        writer: Writer,
        secret: ServerSecret,
        owners: WebhookOwners,
        requests: PinnedRequests,
        max_webhooks: int,
    ) -> None:
        self._database = database
        self._writer = writer
        self._secret = secret
        self.owners = owners
        self._requests = requests
        self._max_webhooks = max_webhooks
        self._tested: set[str] = set()
        self.changed: Callable[[], None] = lambda: None
        """Called when a webhook was added, changed or removed."""

    async def create(self, principal: Principal, given: WebhookInput, directory: str | None) -> NewWebhook:
        """`directory`, and the session in `given`, are checked to be the principal's. Raises BadRequest, TooManyWebhooks."""
        _check_patterns(given.events)
        await self._check_url(given.url)
        secret = _checked_secret(given.secret) if given.secret is not None else new_secret()
        row = {
            "id": ids.ascending("webhook"),
            "owner": principal.name,
            "role": await self._role_of(principal.name),
            "url": given.url,
            "events": orjson.dumps(given.events).decode(),
            "directory": directory,
            "session_id": given.session_id,
            "secret": self._encrypted(secret),
            "id_key": random.token_hex(16),
            "created": clock.now_ms(),
        }
        stored = await self._database.write(lambda connection: self._add(connection, row))
        self.changed()
        return NewWebhook(**dict(_shown(stored)), secret=secret)

    async def all(self, principal: Principal) -> list[Webhook]:
        rows = await self._database.read(webhook_rows.all_of)
        return [_shown(row) for row in rows if _may_manage(principal, row.owner)]

    async def get(self, principal: Principal, webhook_id: str) -> Webhook:
        """Raises NotFound, as the others do."""
        return _shown(await self._find(principal, webhook_id))

    async def change(self, principal: Principal, webhook_id: str, patch: WebhookPatch) -> Webhook:
        """Raises BadRequest, NotFound."""
        row = await self._find(principal, webhook_id)
        values = await self._changes(row, patch)
        if values and not await self._database.write(lambda connection: webhook_rows.change(connection, webhook_id, values)):
            raise _not_found(webhook_id)
        self.changed()
        return await self.get(principal, webhook_id)

    async def remove(self, principal: Principal, webhook_id: str) -> None:
        await self._find(principal, webhook_id)
        await self._database.write(lambda connection: webhook_rows.remove(connection, webhook_id))
        self.changed()

    async def deliveries(self, principal: Principal, webhook_id: str, limit: int) -> list[WebhookDelivery]:
        """Newest first."""
        await self._find(principal, webhook_id)
        rows = await self._database.read(lambda connection: webhook_rows.deliveries(connection, webhook_id, limit))
        return [_delivery(row._asdict()) for row in rows]

    async def test(self, principal: Principal, webhook_id: str) -> WebhookDelivery:
        """Sends a `webhook.test` now, once, whatever the webhook waits for. Raises Conflict while another one is sent."""
        row = await self._find(principal, webhook_id)
        if webhook_id in self._tested:
            raise Conflict("A test of this webhook is under way: wait for its answer.")
        secret = self._decrypted(row)
        if secret is None:
            raise Conflict("The secret of this webhook cannot be decrypted: give it another one.")
        name = message_id(row.id_key, f"test {random.token_hex(8)}")
        content = message(name, TEST, clock.now_ms(), row.directory, {"webhookID": row.id})
        sender = WebhookSender(self._requests)
        self._tested.add(webhook_id)
        try:
            entry = delivery_row(content, await sender.send(row.url, secret, content), attempt=1)
        finally:
            self._tested.discard(webhook_id)
            await sender.close()
        await self._database.write(lambda connection: _log(connection, webhook_id, entry))
        return _delivery(entry)

    async def backlog(self) -> int:
        return await self._database.read(webhook_rows.backlog)

    def worker(self, row: Any) -> WebhookWorker:
        sender = WebhookSender(self._requests)
        return WebhookWorker(row, self._decrypted(row), sender, self._database, self._writer, self.owners)

    async def _find(self, principal: Principal, webhook_id: str) -> Any:
        row = await self._database.read(lambda connection: webhook_rows.find(connection, webhook_id))
        if row is None or not _may_manage(principal, row.owner):
            raise _not_found(webhook_id)
        return row

    def _add(self, connection: Connection, row: Mapping[str, Any]) -> Any:
        if len(webhook_rows.all_of(connection, row["owner"])) >= self._max_webhooks:
            raise TooManyWebhooks(self._max_webhooks)
        webhook_rows.add(connection, {**row, "cursor": journal_rows.newest_seq(connection)})
        return webhook_rows.find(connection, row["id"])

    async def _changes(self, row: Any, patch: WebhookPatch) -> dict[str, Any]:
        """The changed columns, in the form in which they are stored."""
        values: dict[str, Any] = {}
        if patch.url is not None:
            await self._check_url(patch.url)
            values |= {"url": patch.url, **_WITHOUT_FAILURE}
        if patch.events is not None:
            _check_patterns(patch.events)
            values["events"] = orjson.dumps(patch.events).decode()
        if patch.secret is not None:
            values["secret"] = self._encrypted(_checked_secret(patch.secret))
        if patch.enabled is not None:
            values["enabled"] = patch.enabled
        if patch.enabled:
            values |= {"role": await self._role_of(row.owner), **_WITHOUT_FAILURE}
        return values

    async def _role_of(self, owner: str) -> str:
        principal = await self.owners.find(owner)
        if principal is None:
            raise BadRequest(f"The owner of this webhook, {owner}, is no user of this server any more.", ["enabled"])
        return principal.role.value

    async def _check_url(self, url: str) -> None:
        """The address is checked again with each message, because a name may lead elsewhere by then."""
        import httpx2

        try:
            parsed = httpx2.URL(url)
            if parsed.userinfo:
                raise BadRequest("url may have no user name or password", ["url"])
            async with asyncio.timeout(RESOLVE_SECONDS):
                await self._requests.checked_addresses(parsed)
        except (httpx2.InvalidURL, TypeError) as error:
            raise BadRequest(f"url is no address: {error}", ["url"]) from error
        except AddressDenied as denied:
            raise BadRequest(f"{denied}. OPENSESSION_WEBHOOK_PRIVATE_ADDRESSES allows private ones.", ["url"]) from denied
        except TimeoutError:
            raise BadRequest(f"The host of url could not be found within {RESOLVE_SECONDS:g} seconds", ["url"]) from None

    def _encrypted(self, secret: str) -> str:
        return self._secret.box().encrypt(secret.encode()).decode()

    def _decrypted(self, row: Any) -> str | None:
        from cryptography.fernet import InvalidToken

        try:
            return self._secret.box().decrypt(row.secret).decode()
        except InvalidToken:
            return None


def _may_manage(principal: Principal, owner: str) -> bool:
    """A viewer sees no webhooks of others: whoever knows a webhook's url may be able to call it."""
    return principal.role is Role.ADMIN or (owner != "" and owner == principal.name)


def _check_patterns(patterns: Sequence[str]) -> None:
    for position, pattern in enumerate(patterns):
        if wrong := problem(pattern):
            raise BadRequest(wrong, ["events", position])


def _checked_secret(secret: str) -> str:
    if not is_secret(secret):
        raise BadRequest("secret must be whsec_ and 24 to 64 random bytes in base64", ["secret"])
    return secret


def _log(connection: Connection, webhook_id: str, entry: Mapping[str, Any]) -> None:
    """Does nothing if the webhook was removed meanwhile."""
    if webhook_rows.find(connection, webhook_id) is not None:
        webhook_rows.add_deliveries(connection, webhook_id, [entry])


def _not_found(webhook_id: str) -> NotFound:
    return NotFound(f"Webhook not found: {webhook_id}")


def _shown(row: Any) -> Webhook:
    failing = None
    if row.enabled and row.failed_since is not None and row.retry_at is not None:
        failing = WebhookFailure(since=row.failed_since, attempts=row.attempts, next_attempt=row.retry_at)
    return Webhook(
        id=row.id,
        url=row.url,
        events=orjson.loads(row.events),
        directory=row.directory,
        session_id=row.session_id,
        owner=row.owner or None,
        enabled=row.enabled,
        disabled_reason=row.disabled_reason,
        failing=failing,
        time=WebhookTime(created=row.created),
    )


def _delivery(row: Mapping[str, Any]) -> WebhookDelivery:
    return WebhookDelivery.model_validate({name: row[name] for name in WebhookDelivery.model_fields})
