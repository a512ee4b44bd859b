"""The metrics of this server."""

from typing import Annotated

from fastapi import Header
from fastapi.responses import PlainTextResponse, Response

from app.api.deps import documented
from app.api.json_route import ServerRequest, router
from app.schema.errors import NotFound

routes = router()

Accept = Annotated[str, Header(include_in_schema=False)]


class NotCounted(NotFound):
    def __init__(self) -> None:
        super().__init__("This server keeps no metrics: start it with OPENSESSION_METRICS=true.")


@routes.get("/metrics", operation_id="metrics", response_class=PlainTextResponse, tags=["global"], responses=documented(403, 404))
async def metrics(request: ServerRequest, accept: Accept = "") -> Response:
    """The figures of this server, in Prometheus' format; for admins. Of several servers each is asked for its own."""
    found = request.services.metrics
    if found is None:
        raise NotCounted
    page, content_type = await found.page(accept)
    return Response(page, headers={"Content-Type": content_type})
