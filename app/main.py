"""The application: routes, errors, security, and the server behind them."""

import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from app import __version__
from app.api import all_sessions, ask, config, directory, errors, event, file, message, metrics, page, plugin, session, vcs
from app.api import server as server_routes
from app.api import session_actions as request
from app.api.audit import Audit, AuditLog
from app.api.continue_trace import ContinueTrace
from app.api.count_requests import CountRequests
from app.api.direct_routes import DirectRoutes
from app.api.json_route import StrictRoute
from app.api.log_failures import LogFailures
from app.api.login import Login
from app.api.routes_below import RoutesBelow
from app.api.security import Access, BodyLimits, Guard, is_loopback
from app.api.throttle import Throttle
from app.api.tokens import TokenStore
from app.config.flags import Flags
from app.plugin.host import ApiAccess
from app.server import Choices, Server
from app.settings import Settings
from app.users.oidc import OidcLogins, OidcSettings


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
    server = Server(settings, workspace or Path.cwd(), choices, api_access, f"{host}:{port}")
    audit_log = AuditLog(settings.data_dir, f"{host}-{port}" if server.is_shared else None)
    server.retention.on_deleted = audit_log.write_pruned
    login = _login(settings, flags, server)
    app.state.services = server.services
    app.state.server = server
    app.state.login = login
    app.add_middleware(Audit, audit_log=audit_log)
    limits = BodyLimits(settings.max_body_bytes, settings.max_import_bytes)
    app.add_middleware(Guard, access=access_of(settings, hostname), login=login, limits=limits)
    if server.telemetry.metrics is not None:
        app.add_middleware(CountRequests, metrics=server.telemetry.metrics)
    if server.telemetry.traces is not None:
        app.add_middleware(ContinueTrace, traces=server.telemetry.traces)
    app.add_middleware(LogFailures)
    return app


def _login(settings: Settings, flags: Flags, server: Server) -> Login:
    users, tokens = server.users, TokenStore(settings.data_dir)
    oidc = None
    if settings.oidc_issuer and settings.oidc_audience:
        oidc = OidcLogins(OidcSettings(settings.oidc_issuer, settings.oidc_audience, settings.oidc_role_claim), users)
    return Login(
        flags.server_username,
        flags.server_password,
        tokens,
        Throttle(server.rates),
        server.event_tokens,
        users,
        oidc,
    )


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


class _Application(FastAPI):
    """FastAPI describes the routes and answers what is not plainly valid. What every request passes is Starlette's: FastAPI's own
    layers (telemetry, stacks of what to close, the search for a route) took longer than a short request's work."""

    _describing = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Starlette.__call__(self, scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        self.router.middleware_stack = DirectRoutes(self.router)
        return Starlette.build_middleware_stack(self)

    @property
    def routes(self) -> list[BaseRoute]:
        """All, loaded for who lists them."""
        return [each for route in super().routes for each in (route.routes if isinstance(route, RoutesBelow) else [route])]

    def openapi(self) -> dict[str, Any]:
        """Made when it is asked for, once, be it by several threads."""
        with self._describing:
            if self.openapi_schema is None:
                whole = FastAPI(title=self.title, version=self.version, description=self.description)
                whole.router.routes = [route.described() if isinstance(route, StrictRoute) else route for route in self.routes]
                self.openapi_schema = _without_422(whole.openapi())
            return self.openapi_schema


def _without_422(description: dict[str, Any]) -> dict[str, Any]:
    """FastAPI describes this answer of every route that takes something. Here such a request is answered with a 400."""
    for methods in description["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        del description["components"]["schemas"][name]
    return description


_SELDOM: dict[str, tuple[str, ...]] = {
    "absent": ("/experimental/", "/global/upgrade", "/provider/", "/sync/"),
    "worktree": ("/experimental/worktree",),
    "search": ("/find/message",),
    "mcp": ("/mcp", "/experimental/resource"),
    "share": ("/session/", "/s/"),
    "transfer": ("/session/",),
    "usage": ("/usage",),
    "retention": ("/prune",),
    "webhook": ("/webhook",),
    "terminals": ("/pty",),
    "terminal_connection": ("/pty/", "/api/pty/"),
    "tui": ("/tui/",),
}
"""Modules of routes that most clients ask for nothing of, and the beginnings of their paths: a start does not wait for them."""


def _routes(lifespan: Lifespan[FastAPI] | None) -> FastAPI:
    app = _Application(
        title="opensession",
        version=__version__,
        description="The OpenCode session system: sessions of typed messages and parts, streamed over SSE.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    # A request is matched against them in this order: what is asked for most stands first. `include_router` would match it twice.
    first = (session, message, event, server_routes, request, ask, config, directory, vcs, file, all_sessions)
    for part in first:
        app.router.routes.extend(part.routes.routes)
    app.router.routes.extend(RoutesBelow(paths, f"app.api.{module}") for module, paths in _SELDOM.items())
    for part in (page, plugin, metrics):
        app.router.routes.extend(part.routes.routes)
    app.router.routes.append(RoutesBelow(("/api/",), "app.api.v2.all_routes"))
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
