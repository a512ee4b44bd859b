"""The server itself: health, dispose, log, and empty answers for OpenCode features that this server does not have."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from fastapi.responses import Response

from app import __version__
from app.api.access import AdminsOnly
from app.api.deps import AppServices, CurrentInstance, Who, json_bytes
from app.api.documented import answer, documented
from app.api.draining import ServerStopping
from app.api.json_route import router
from app.api.roles import ANSWERS, MANAGES, READS
from app.schema.base import Wire
from app.schema.lsp import FormatterStatus, LSPStatus
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


_HEALTH = {**documented(400), 503: answer("The server cannot serve now", Unhealthy)}


@routes.get("/global/health", tags=["global"], response_model=Health, responses=_HEALTH, dependencies=READS)
async def health(app: AppServices, who: Who, replicas: ListReplicas = False) -> Response:
    """Whether this server can serve: 503 while it stops, while its database accepts no writes, or no thread is free."""
    reason = STOPPING if app.draining.has_begun else await app.health.failure()
    if reason is not None:
        return json_bytes(Unhealthy(reason=reason).wire_json(), 503, RETRY_AFTER)
    if not replicas:
        return json_bytes(Health().wire_json())
    if not who.may_see_all:
        raise AdminsOnly
    return json_bytes(Health(replicas=[*await app.replicas.all()]).wire_json())


@routes.post("/global/dispose", tags=["global"], dependencies=MANAGES)
async def dispose(app: AppServices) -> bool:
    await app.disposal.all()
    return True


@routes.post("/log", tags=["app"], responses=documented(400), dependencies=ANSWERS)
async def log(body: LogEntry) -> bool:
    client_log(body.service, body.level, body.message, body.extra)
    return True


@routes.get("/doc", include_in_schema=False, dependencies=READS)
async def doc(request: Request) -> Any:
    """The first description takes more than a second to make: others are answered meanwhile."""
    return await asyncio.to_thread(request.app.openapi)


@routes.get("/lsp", tags=["lsp"], operation_id="lsp.status", dependencies=READS)
async def lsp(instance: CurrentInstance) -> list[LSPStatus]:
    """The language servers of the directory that have started: each does so at the first file that it is for."""
    return instance.extensions.language_servers.statuses()


@routes.get("/formatter", tags=["formatter"], operation_id="formatter.status", dependencies=READS)
async def formatter(instance: CurrentInstance) -> list[FormatterStatus]:
    """The formatters that there may be: `enabled` where the project uses one and its program is there."""
    return await instance.extensions.formatters.statuses()
