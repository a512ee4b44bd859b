"""Deleting old sessions."""

from fastapi.responses import Response

from app.api.deps import AppServices
from app.api.json_route import router
from app.api.keepalive_json import keeping_alive
from app.api.roles import MANAGES
from app.runs.retention import PruneRule
from app.schema.retention import PruneInput, PruneReport

routes = router("", 400, 403, tags=["session"])
routers = (routes,)


@routes.post("/prune", response_model=PruneReport, dependencies=MANAGES)
async def prune(app: AppServices, body: PruneInput) -> Response:
    """Deletes sessions that nobody has used for `olderThanDays`, each with all below it. What runs, is shared or `pinned` stays,
    and what stands below or above it. It goes on when the client goes away."""
    rule = PruneRule.older_than(body.older_than_days, archived_only=body.archived_only)

    async def report() -> bytes:
        return (await app.retention.prune(rule, dry_run=body.dry_run)).wire_json()

    return keeping_alive(report())
