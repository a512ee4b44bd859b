"""The application: routes, errors, security, and the server behind them."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import FastAPI
from starlette.types import Lifespan

from app import __version__
from app.api import error_handler
from app.api.all_routes import ROUTERS
from app.api.application import Application
from app.api.audit import Audit, AuditLog
from app.api.continue_trace import ContinueTrace
from app.api.count_requests import CountRequests
from app.api.log_failures import LogFailures
from app.api.security import Access, BodyLimits, Guard, is_loopback
from app.config.flags import Flags
from app.plugin.host import ApiAccess
from app.server import Choices, Server
from app.settings import Settings


def create_app(
    settings: Settings | None = None,
    *,
    workspace: Path | None = None,
    hostname: str = "127.0.0.1",
    port: int = 4096,
    choices: Choices = Choices(),
    password: str | None = None,
) -> FastAPI:
    """`workspace` is the directory that requests work in when they name none; `hostname` and `port` are the server's own.
    `password` takes the place of the environment's."""
    settings, flags = settings or Settings(), Flags.from_env()
    flags = replace(flags, server_password=password) if password else flags

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        try:
            await server.start()
            yield
        finally:
            try:
                await server.stop()
            finally:
                audit_log.close()

    app = _routes(lifespan)
    api_access = _api_access(app, flags, settings.public_url or f"http://{hostname}:{port}")
    host = socket.gethostname()
    server = Server(settings, workspace or Path.cwd(), choices, api_access, f"{host}:{port}", flags)
    audit_log = AuditLog(settings.data_dir, f"{host}-{port}" if server.is_shared else None)
    server.retention.on_deleted = audit_log.write_pruned
    app.state.server = server
    app.add_middleware(Audit, audit_log=audit_log)
    limits = BodyLimits(settings.max_body_bytes, settings.max_import_bytes)
    app.add_middleware(Guard, access=access_of(settings, hostname), login=server.login, limits=limits)
    if server.metrics is not None:
        app.add_middleware(CountRequests, metrics=server.metrics)
    if server.telemetry.traces is not None:
        app.add_middleware(ContinueTrace, traces=server.telemetry.traces)
    app.add_middleware(LogFailures)
    return app


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
    """The API's description; routes alone make it, no database is opened."""
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
    )
    for routes in ROUTERS:
        app.include_router(routes)
    error_handler.install(app)
    return app


def access_of(settings: Settings, hostname: str) -> Access:
    public = urlsplit(settings.public_url).hostname if settings.public_url else None
    return Access(
        hosts=frozenset(name for name in (hostname, public) if name),
        any_address=not is_loopback(hostname),
        origins=settings.allowed_origins,
        loopback_origins=settings.allows_loopback_origins,
    )
