"""The application: routes, errors, security, and the server behind them."""

import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from pydantic.json_schema import models_json_schema
from starlette.types import Lifespan

from app import __version__
from app.api import directory, errors, event, message, server, session
from app.api.audit import Audit, AuditLog, ObserveRequests
from app.api.deps import NEXT_CURSOR
from app.api.json_route import LaterRouter
from app.api.security import LOOPBACK_ORIGIN, Access, BodyLimit, Guard, is_loopback
from app.project.config.flags import Flags
from app.server import Choices, Server
from app.settings import Settings
from app.tools.plugins.host import ApiAccess

# The routes.


_FIRST = (
    message.routes,
    session.routes,
    session.actions,
    event.routes,
    server.routes,
    message.permissions,
    message.questions,
    message.editors,
    directory.configuration,
    directory.project,
    directory.routes,
    event.tokens,
    directory.global_config,
    directory.auth,
    session.everywhere,
)
_LATER = (
    LaterRouter("app.api.v2", "/api/"),
    LaterRouter("app.api.absent", "/experimental/", "/global/upgrade", "/provider/", "/sync/"),
    LaterRouter("app.api.file", "/vcs", "/experimental/worktree", "/file", "/find"),
    LaterRouter("app.api.mcp", "/mcp-server", "/mcp", "/experimental/resource"),
    LaterRouter("app.api.share", "/session/", "/s/"),
    LaterRouter("app.api.webhook", "/webhook"),
    LaterRouter("app.api.terminals", "/pty", "/api/pty/"),
    LaterRouter("app.api.tui", "/tui/"),
)
ROUTERS = (*_FIRST, *_LATER, server.pages)


def load_all() -> None:
    """For callers that list all routes."""
    for each in _LATER:
        each.load()


class Application(FastAPI):
    _describing = threading.Lock()

    def openapi(self) -> dict[str, Any]:
        """Made at the first request for it, once for all threads."""
        with self._describing:
            if self.openapi_schema is None:
                load_all()
                _amend(super().openapi())
            assert self.openapi_schema is not None
            return self.openapi_schema


def _amend(description: dict[str, Any]) -> None:
    """FastAPI describes a 422 of every route with parameters; here such a request is answered with a 400. Adds models of errors,
    which routes only name."""
    for methods in description["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    schemas = description["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        del schemas[name]
    _, found = models_json_schema(
        [(model, "serialization") for model in errors.named_models], ref_template="#/components/schemas/{model}"
    )
    description["components"]["schemas"] = dict(sorted({**found["$defs"], **schemas}.items()))


# The application.


def create_app(
    settings: Settings,
    *,
    workspace: Path | None = None,
    hostname: str = "127.0.0.1",
    port: int = 4096,
    choices: Choices = Choices(),
    password: str | None = None,
) -> FastAPI:
    """`workspace`: the directory of requests that name none. `hostname` and `port` are the server's own. `password` replaces the
    environment's."""
    flags = Flags.from_env()
    flags = replace(flags, server_password=password) if password else flags

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        with closing(audit_log):
            try:
                await server.start()
                yield
            finally:
                await server.stop()

    app = _routes(lifespan)
    api_access = _api_access(app, flags, settings.public_url or f"http://{hostname}:{port}")
    host = socket.gethostname()
    server = Server(settings, workspace or Path.cwd(), choices, api_access, f"{host}:{port}", flags)
    audit_log = AuditLog(settings.data_dir, f"{host}-{port}" if server.is_shared else None)
    server.retention.on_deleted = audit_log.write_pruned
    app.state.server = server
    _add_middleware(app, server, access_of(settings, hostname), audit_log)
    return app


def _add_middleware(app: FastAPI, server: Server, access: Access, audit_log: AuditLog) -> None:
    """The last one added is the outermost."""
    settings = server.settings
    app.add_middleware(Audit, audit_log=audit_log)
    app.add_middleware(
        Guard,
        access=access,
        login=server.login,
        body=BodyLimit(settings.max_body_bytes, "OPENSESSION_MAX_BODY_BYTES"),
        imported=BodyLimit(settings.max_import_bytes, "OPENSESSION_MAX_IMPORT_BYTES"),
    )
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_origin_regex=LOOPBACK_ORIGIN if settings.allows_loopback_origins else None,
            allow_methods=["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"],
            allow_headers=["*"],
            expose_headers=[NEXT_CURSOR],
        )
    app.add_middleware(ObserveRequests, metrics=server.metrics, traces=server.telemetry.traces)


def _api_access(app: FastAPI, flags: Flags, url: str) -> ApiAccess:
    """Plugins call the API within this process, with the server's own password."""

    def connect(directory: str) -> Any:
        import httpx2

        return httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app),
            base_url="http://127.0.0.1",
            auth=(flags.server_username, flags.server_password) if flags.server_password else None,
            headers={"x-opencode-directory": quote(directory)},
        )

    return ApiAccess(url, connect)


def openapi_yaml() -> str:
    """The API's description. Needs only the routes, no database."""
    import yaml

    text: str = yaml.safe_dump(_routes(None).openapi(), sort_keys=False, allow_unicode=True, width=130)
    return text


def _routes(lifespan: Lifespan[FastAPI] | None) -> FastAPI:
    app = Application(
        title="opensession",
        version=__version__,
        description="The OpenCode session system: sessions of typed messages and parts, streamed over SSE.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # ours: telemetry/
    )
    for routes in ROUTERS:
        app.include_router(routes)
    errors.install(app)
    return app


def access_of(settings: Settings, hostname: str) -> Access:
    public = urlsplit(settings.public_url).hostname if settings.public_url else None
    return Access(
        hosts=frozenset(name for name in (hostname, public) if name),
        any_address=not is_loopback(hostname),
        origins=settings.allowed_origins,
        loopback_origins=settings.allows_loopback_origins,
    )
