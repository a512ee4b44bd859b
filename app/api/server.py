"""The server itself: health, dispose, log, and empty answers for OpenCode features that this server does not have."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from fastapi.responses import Response

from app import __version__
from app.api.access import AdminsOnly
from app.api.deps import TRUE, documented, json_bytes
from app.api.draining import ServerStopping
from app.api.json_route import ServerRequest, router
from app.schema.base import Wire
from app.session.replicas import ReplicaHealth
from app.util.log import client_log

routes = router()


class Health(Wire):
    healthy: Literal[True] = True
    version: str = __version__
    replicas: list[ReplicaHealth] | None = None


class Unhealthy(Wire):
    healthy: Literal[False] = False
    version: str = __version__
    reason: str


ListReplicas = Annotated[bool, Query(description="List the servers of this database too; needs the login")]

STOPPING = "The server is stopping: running turns may finish, new work is refused."
RETRY_AFTER = {"Retry-After": str(ServerStopping.retry_after)}


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
    responses={**documented(400), 503: {"description": "The server cannot serve now", "model": Unhealthy}},
)
async def health(request: ServerRequest, replicas: ListReplicas = False) -> Response:
    """Whether this server can serve: 503 while it stops, while its database accepts no writes, or no thread is free."""
    app = request.services
    reason = STOPPING if app.draining.has_begun else await app.health.failure()
    if reason is not None:
        return json_bytes(Unhealthy(reason=reason).wire_json(), 503, RETRY_AFTER)
    if not replicas:
        return json_bytes(Health().wire_json())
    if not request.principal.may_see_all:
        raise AdminsOnly
    return json_bytes(Health(replicas=[*await app.replicas.all()]).wire_json())


@routes.post("/global/dispose", operation_id="global.dispose", response_model=bool, tags=["global"])
async def dispose(request: ServerRequest) -> Response:
    await request.services.runs.disposal.all()
    return json_bytes(TRUE)


@routes.post("/log", operation_id="app.log", response_model=bool, tags=["app"], responses=documented(400))
async def log(body: LogEntry) -> Response:
    client_log(body.service, body.level, body.message, body.extra)
    return json_bytes(TRUE)


@routes.get("/doc", include_in_schema=False)
async def doc(request: Request) -> Any:
    """The first description takes more than a second to make: others are answered meanwhile."""
    return await asyncio.to_thread(request.app.openapi)


@routes.get("/lsp", operation_id="lsp.status", response_model=list[dict[str, Any]], tags=["lsp"])
async def lsp() -> Response:
    """No language servers run here."""
    return json_bytes(b"[]")


@routes.get("/formatter", operation_id="formatter.status", response_model=list[dict[str, Any]], tags=["formatter"])
async def formatter() -> Response:
    """No formatters run here."""
    return json_bytes(b"[]")
