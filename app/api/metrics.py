"""The metrics of this server."""

from typing import Annotated

from fastapi import Header
from fastapi.responses import PlainTextResponse, Response

from app.api.deps import AppServices
from app.api.json_route import router
from app.api.roles import ADMIN_READS
from app.schema.errors import NotFound

routes = router("", 403, 404)

Accept = Annotated[str, Header(include_in_schema=False)]


class NotCounted(NotFound):
    def __init__(self) -> None:
        super().__init__("This server keeps no metrics: start it with OPENSESSION_METRICS=true.")


@routes.get("/metrics", tags=["global"], operation_id="metrics", response_class=PlainTextResponse, dependencies=ADMIN_READS)
async def metrics(app: AppServices, accept: Accept = "") -> Response:
    """The figures of this server, in Prometheus' format; for admins. Of several servers each is asked for its own."""
    found = app.metrics
    if found is None:
        raise NotCounted
    page, content_type = await found.page(accept)
    return Response(page, headers={"Content-Type": content_type})
