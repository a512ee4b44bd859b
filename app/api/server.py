"""The server itself: health, dispose, log, and answers that clients ask for at their start about what there is none of here."""

from typing import Any, Literal

from fastapi import Request
from fastapi.responses import Response

from app import __version__
from app.api.deps import TRUE, documented, json_bytes
from app.api.draining import ServerStopping
from app.api.json_route import ServerRequest, router
from app.schema.base import Wire
from app.util.log import client_log

routes = router()


class Health(Wire):
    healthy: Literal[True] = True
    version: str = __version__


class Stopping(Wire):
    healthy: Literal[False] = False
    version: str = __version__
    reason: str = "The server is stopping: running turns may finish, new work is refused."


class LogEntry(Wire):
    service: str
    level: Literal["debug", "info", "error", "warn"]
    message: str
    extra: dict[str, Any] | None = None


@routes.get(
    "/global/health",
    operation_id="global.health",
    response_model=Health,
    tags=["global"],
    responses={503: {"description": "The server is stopping", "model": Stopping}},
)
async def health(request: ServerRequest) -> Response:
    if request.services.draining.has_begun:
        return json_bytes(Stopping().wire_json(), 503, {"Retry-After": str(ServerStopping.retry_after)})
    return json_bytes(Health().wire_json())


@routes.post("/global/dispose", operation_id="global.dispose", response_model=bool, tags=["global"])
async def dispose(request: ServerRequest) -> Response:
    await request.services.disposal.all()
    return json_bytes(TRUE)


@routes.post("/log", operation_id="app.log", response_model=bool, tags=["app"], responses=documented(400))
async def log(body: LogEntry) -> Response:
    client_log(body.service, body.level, body.message, body.extra)
    return json_bytes(TRUE)


@routes.get("/doc", include_in_schema=False)
async def doc(request: Request) -> Any:
    return request.app.openapi()


@routes.get("/lsp", operation_id="lsp.status", response_model=list[dict[str, Any]], tags=["lsp"])
async def lsp() -> Response:
    """No language servers run here."""
    return json_bytes(b"[]")


@routes.get("/formatter", operation_id="formatter.status", response_model=list[dict[str, Any]], tags=["formatter"])
async def formatter() -> Response:
    """No formatters run here."""
    return json_bytes(b"[]")
