"""What model calls took: tokens, cost, turns and tool calls."""

from typing import Annotated

from fastapi import Query

from app.api.deps import AppServices, Who
from app.api.json_route import router
from app.api.roles import READS
from app.schema.usage import UsageGroup, UsageReport
from app.session.usage import usage_report
from app.storage.repositories.account_rows import UsageFilter

routes = router("/usage", 400, tags=["usage"])
routers = (routes,)

LATEST_MS = 2**53


@routes.get("", operation_id="usage.get", dependencies=READS)
async def usage(
    app: AppServices,
    who: Who,
    since: Annotated[int | None, Query(ge=0, le=LATEST_MS, description="From this time on (ms)")] = None,
    until: Annotated[int | None, Query(ge=0, le=LATEST_MS, description="Up to this time (ms), which is excluded")] = None,
    group: Annotated[UsageGroup, Query(description="What it is summed up by")] = "model",
) -> UsageReport:
    """A member sees what their own sessions took. What was used stays counted when its session is deleted, and stays whose it was
    when the session is given to another user."""
    return await app.store.query(usage_report, UsageFilter(since, until, who.visible_owner), group)
