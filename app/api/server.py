"""Routes of the server as a whole: health, metrics, usage, pruning, its log and its description. Also the browser page: static
files, for trying the server out and as an example for authors of frontends."""

import asyncio
import pathlib
from typing import Annotated, Any, Literal

from fastapi import Header, Path, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from app import __version__
from app.api.deps import AppServices, CurrentInstance, Who, json_bytes
from app.api.errors import described_answer, documented
from app.api.event import keeping_alive
from app.api.json_route import router
from app.api.roles import ADMIN_READS, MANAGES, READS, WRITES_WHILE_STOPPING, AdminsOnly
from app.schema.base import Wire
from app.schema.errors import NotFound
from app.schema.project import FormatterStatus, LSPStatus
from app.schema.session import PruneInput, PruneReport, UsageGroup, UsageReport
from app.server import ServerStopping
from app.sessions.replicas import ReplicaHealth
from app.sessions.retention import PruneRule
from app.sessions.usage import usage_report
from app.util.secrets import client_log

routes = router()


class Health(Wire):
    healthy: Literal[True] = True
    version: str = __version__
    replicas: list[ReplicaHealth] | None = None


class Unhealthy(Wire):
    healthy: Literal[False] = False
    version: str = __version__
    reason: str


ListReplicas = Annotated[bool, Query(description="Also list the other servers of this database; only this needs a login")]

STOPPING = "The server is stopping: running turns may finish, new work is refused."
RETRY_AFTER = {"Retry-After": str(ServerStopping.retry_after)}


class LogEntry(Wire):
    service: str
    level: Literal["debug", "info", "error", "warn"]
    message: str
    extra: dict[str, Any] | None = None


_HEALTH = {**documented(400), 503: described_answer("The server cannot serve now", Unhealthy)}


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


@routes.post("/log", tags=["app"], responses=documented(400), dependencies=WRITES_WHILE_STOPPING)
async def log(body: LogEntry) -> bool:
    client_log(body.service, body.level, body.message, body.extra)
    return True


@routes.get("/doc", include_in_schema=False, dependencies=READS)
async def doc(request: Request) -> Any:
    """Runs in a thread: the first description takes more than a second to make, and other requests are answered meanwhile."""
    return await asyncio.to_thread(request.app.openapi)


@routes.get("/lsp", tags=["lsp"], operation_id="lsp.status", dependencies=READS)
async def lsp(instance: CurrentInstance) -> list[LSPStatus]:
    """The directory's language servers that have started. A server starts when the first file of its language is used."""
    return instance.extensions.language_servers.statuses()


@routes.get("/formatter", tags=["formatter"], operation_id="formatter.status", dependencies=READS)
async def formatter(instance: CurrentInstance) -> list[FormatterStatus]:
    """Formatters that may run. `enabled`: its command is configured; or the project uses it, its program is there and works."""
    return await instance.extensions.formatters.statuses()


LATEST_MS = 2**53
"""The largest whole number that JSON clients keep exactly."""


@routes.get("/usage", tags=["usage"], operation_id="usage.get", responses=documented(400), dependencies=READS)
async def usage(
    app: AppServices,
    who: Who,
    since: Annotated[int | None, Query(ge=0, le=LATEST_MS, description="From this time on (ms)")] = None,
    until: Annotated[int | None, Query(ge=0, le=LATEST_MS, description="Up to this time (ms), which is excluded")] = None,
    group: Annotated[UsageGroup, Query(description="What it is summed up by")] = "model",
) -> UsageReport:
    """What model calls cost, in tokens and dollars; members see their own. Usage stays counted when its session is deleted, and
    stays its former owner's when the session is given to another user."""
    return await app.store.query(usage_report, group, since, until, who.visible_owner)


@routes.post("/prune", tags=["session"], response_model=PruneReport, responses=documented(400, 403), dependencies=MANAGES)
async def prune(app: AppServices, body: PruneInput) -> Response:
    """Deletes sessions that nobody has used for `olderThanDays`, in whole trees: each with its descendants. A tree in which one
    session runs, is shared or `pinned` is kept. The deletion goes on if the client disconnects."""
    rule = PruneRule.older_than(body.older_than_days, archived_only=body.archived_only)

    async def report() -> bytes:
        return (await app.retention.prune(rule, dry_run=body.dry_run)).wire_json()

    return keeping_alive(report())


class MetricsOff(NotFound):
    text = "This server keeps no metrics: start it with OPENSESSION_METRICS=true."


_METRICS = documented(403, 404)


@routes.get(
    "/metrics",
    tags=["global"],
    operation_id="metrics",
    response_class=PlainTextResponse,
    responses=_METRICS,
    dependencies=ADMIN_READS,
)
async def metrics(app: AppServices, accept: Annotated[str, Header(include_in_schema=False)] = "") -> Response:
    """The figures of this one server, in Prometheus' format; for admins."""
    if app.metrics is None:
        raise MetricsOff
    text, content_type = await app.metrics.page(accept)
    return Response(text, headers={"Content-Type": content_type})


pages = router("", include_in_schema=False)

PAGE_FILES = pathlib.Path(__file__).parents[1] / "page"

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""The page shows what a model writes as text. If that failed, these headers would still stop scripts and requests elsewhere."""

_PRIVATE = {**HEADERS, "Cache-Control": "no-store", "X-Robots-Tag": "noindex, nofollow"}


class PageFiles(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


files = PageFiles(directory=PAGE_FILES)
pages.mount("/page", files)


@pages.get("/", dependencies=READS)
async def page(request: Request) -> Response:
    return await files.get_response("index.html", request.scope)


@pages.get("/s/{shareID}", dependencies=READS)
async def shared(app: AppServices, share_id: Annotated[str, Path(alias="shareID")]) -> Response:
    if await app.shares.is_shared(share_id):
        return FileResponse(PAGE_FILES / "share.html", headers=_PRIVATE)
    return FileResponse(PAGE_FILES / "not-shared.html", 404, _PRIVATE)
