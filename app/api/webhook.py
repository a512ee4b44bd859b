"""Webhooks: addresses that the server sends events to."""

from typing import Annotated

from fastapi import Path, Query

from app.api.deps import AppServices, Who, location_of
from app.api.errors import documented
from app.api.json_route import router
from app.api.roles import READS, WRITES, require_session
from app.record.repositories.webhook_rows import KEEP_DELIVERIES
from app.schema.webhook import NewWebhook, Webhook, WebhookDelivery, WebhookInput, WebhookPatch

routes = router("/webhook", tags=["webhook"])
of_one = router("/webhook/{webhookID}", 400, 404, tags=["webhook"])
routers = (routes, of_one)

WebhookPath = Annotated[str, Path(alias="webhookID", pattern="^whk")]
Limit = Annotated[int, Query(ge=1, le=KEEP_DELIVERIES)]


@routes.post("", responses=documented(400, 403, 404, 429), dependencies=WRITES)
async def create(app: AppServices, who: Who, body: WebhookInput) -> NewWebhook:
    """Only this answer has the secret."""
    directory = (await location_of(app, who, body.directory)).directory if body.directory else None
    if body.session_id is not None:
        await app.store.session(body.session_id)
        await require_session(app, who, body.session_id)
    return await app.webhooks.create(who, body, directory)


@routes.get("", operation_id="webhook.list", dependencies=READS)
async def webhooks(app: AppServices, who: Who) -> list[Webhook]:
    """A user's own webhooks; for admins all."""
    return list(await app.webhooks.all(who))


@of_one.get("", operation_id="webhook.get", dependencies=READS)
async def webhook(app: AppServices, who: Who, webhook_id: WebhookPath) -> Webhook:
    return await app.webhooks.get(who, webhook_id)


@of_one.patch("", dependencies=WRITES)
async def update(app: AppServices, who: Who, webhook_id: WebhookPath, body: WebhookPatch) -> Webhook:
    return await app.webhooks.change(who, webhook_id, body)


@of_one.delete("", dependencies=WRITES)
async def delete(app: AppServices, who: Who, webhook_id: WebhookPath) -> bool:
    await app.webhooks.remove(who, webhook_id)
    return True


@of_one.get("/deliveries", dependencies=READS)
async def deliveries(app: AppServices, who: Who, webhook_id: WebhookPath, limit: Limit = 50) -> list[WebhookDelivery]:
    """The last attempts, newest first."""
    return list(await app.webhooks.deliveries(who, webhook_id, limit))


@of_one.post("/test", responses=documented(409), dependencies=WRITES)
async def test(app: AppServices, who: Who, webhook_id: WebhookPath) -> WebhookDelivery:
    """Sends a `webhook.test` now, once, and says how it went."""
    return await app.webhooks.test(who, webhook_id)
