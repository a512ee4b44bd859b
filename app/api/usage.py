"""What model calls took: tokens, cost, turns and tool calls."""

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from app.api.deps import documented, wire
from app.api.json_route import ServerRequest, router
from app.schema.usage import UsageGroup, UsageReport
from app.storage.repositories.account_rows import UsageFilter

routes = router(prefix="/usage", tags=["usage"])

LATEST_MS = 2**53


@routes.get("", operation_id="usage.get", response_model=UsageReport, responses=documented(400))
async def usage(
    request: ServerRequest,
    since: Annotated[int | None, Query(ge=0, le=LATEST_MS, description="From this time on (ms)")] = None,
    until: Annotated[int | None, Query(ge=0, le=LATEST_MS, description="Up to this time (ms), which is excluded")] = None,
    group: Annotated[UsageGroup, Query(description="What it is summed up by")] = "model",
) -> Response:
    """A member sees what their own sessions took. What was used stays counted when its session is deleted, and stays whose it was
    when the session is given to another user."""
    return wire(await request.services.sessions.usage.report(UsageFilter(since, until, request.principal.visible_owner), group))
