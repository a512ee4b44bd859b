"""Deleting old sessions."""

from fastapi.responses import Response

from app.api.deps import documented
from app.api.json_route import ServerRequest, router
from app.api.keepalive_json import KeepaliveJson
from app.runs.retention import PruneRule
from app.schema.retention import PruneInput, PruneReport

routes = router(tags=["session"])


@routes.post("/prune", operation_id="session.prune", response_model=PruneReport, responses=documented(400, 403))
async def prune(request: ServerRequest, body: PruneInput) -> Response:
    """Deletes sessions that nobody has used for `olderThanDays`, each with all below it. What runs, is shared or `pinned` stays,
    and what stands below or above it. It goes on when the client goes away."""
    rule = PruneRule.older_than(body.older_than_days, archived_only=body.archived_only)
    retention = request.services.runs.retention

    async def report() -> bytes:
        return (await retention.prune(rule, dry_run=body.dry_run)).wire_json()

    return KeepaliveJson(report())
