"""Webhooks: whom the server calls when something happens."""

from typing import Annotated

from fastapi import Path, Query
from fastapi.responses import Response

from app.api.access import require_session
from app.api.deps import TRUE, documented, json_bytes, location_of, wire
from app.api.json_route import ServerRequest, router
from app.schema.webhook import NewWebhook, Webhook, WebhookDelivery, WebhookInput, WebhookPatch
from app.storage.repositories.webhook_rows import KEEP_DELIVERIES
from app.webhook.service import WebhookScope

routes = router(tags=["webhook"])

WebhookPath = Annotated[str, Path(alias="webhookID", pattern="^whk")]
Limit = Annotated[int, Query(ge=1, le=KEEP_DELIVERIES)]


@routes.post("/webhook", operation_id="webhook.create", response_model=NewWebhook, responses=documented(400, 403, 404, 429))
async def create(request: ServerRequest, body: WebhookInput) -> Response:
    """The answer is the only one that has the secret."""
    scope = await _scope(request, body)
    return wire(await request.services.webhooks.create(request.principal, body, scope))


async def _scope(request: ServerRequest, body: WebhookInput) -> WebhookScope:
    directory = (await location_of(request, body.directory)).directory if body.directory else None
    if body.session_id is not None:
        await request.services.sessions.store.session(body.session_id)
        await require_session(request.services, request.principal, body.session_id)
    return WebhookScope(directory, body.session_id)


@routes.get("/webhook", operation_id="webhook.list", response_model=list[Webhook])
async def webhooks(request: ServerRequest) -> Response:
    """A user's own; for admins all."""
    found = await request.services.webhooks.all(request.principal)
    return json_bytes(b"[%b]" % b",".join(webhook.wire_json() for webhook in found))


@routes.get("/webhook/{webhookID}", operation_id="webhook.get", response_model=Webhook, responses=documented(400, 404))
async def webhook(request: ServerRequest, webhook_id: WebhookPath) -> Response:
    return wire(await request.services.webhooks.get(request.principal, webhook_id))


@routes.patch("/webhook/{webhookID}", operation_id="webhook.update", response_model=Webhook, responses=documented(400, 404))
async def update(request: ServerRequest, webhook_id: WebhookPath, body: WebhookPatch) -> Response:
    return wire(await request.services.webhooks.change(request.principal, webhook_id, body))


@routes.delete("/webhook/{webhookID}", operation_id="webhook.delete", response_model=bool, responses=documented(400, 404))
async def delete(request: ServerRequest, webhook_id: WebhookPath) -> Response:
    await request.services.webhooks.remove(request.principal, webhook_id)
    return json_bytes(TRUE)


@routes.get(
    "/webhook/{webhookID}/deliveries",
    operation_id="webhook.deliveries",
    response_model=list[WebhookDelivery],
    responses=documented(400, 404),
)
async def deliveries(request: ServerRequest, webhook_id: WebhookPath, limit: Limit = 50) -> Response:
    """The last attempts, the newest first."""
    found = await request.services.webhooks.deliveries(request.principal, webhook_id, limit)
    return json_bytes(b"[%b]" % b",".join(delivery.wire_json() for delivery in found))


@routes.post(
    "/webhook/{webhookID}/test",
    operation_id="webhook.test",
    response_model=WebhookDelivery,
    responses=documented(400, 404, 409),
)
async def test(request: ServerRequest, webhook_id: WebhookPath) -> Response:
    """Sends a `webhook.test` now, once, and says how it went."""
    return wire(await request.services.webhooks.test(request.principal, webhook_id))
