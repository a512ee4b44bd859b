"""FastAPI with the routers of both APIs, and the description of them as clients are to read it."""

import threading
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from app.api import (
    ask,
    config,
    directory,
    event,
    message,
    page,
    server,
    session,
)
from app.api.documented import described
from app.api.json_route import LaterRouter

_FIRST = (
    message.routes,
    session.routes,
    session.actions,
    event.routes,
    server.routes,
    ask.permissions,
    ask.questions,
    ask.editors,
    config.routes,
    directory.project,
    directory.routes,
    event.tokens,
    config.global_config,
    config.auth,
    session.everywhere,
)
_LATER = (
    LaterRouter("app.api.v2.all_routes", "/api/"),
    LaterRouter("app.api.absent", "/experimental/", "/global/upgrade", "/provider/", "/sync/"),
    LaterRouter("app.api.vcs", "/vcs", "/experimental/worktree"),
    LaterRouter("app.api.file", "/file", "/find"),
    LaterRouter("app.api.mcp_server", "/mcp-server"),
    LaterRouter("app.api.mcp", "/mcp", "/experimental/resource"),
    LaterRouter("app.api.share", "/session/", "/s/"),
    LaterRouter("app.api.transfer", "/session/"),
    LaterRouter("app.api.webhook", "/webhook"),
    LaterRouter("app.api.terminals", "/pty"),
    LaterRouter("app.api.terminal_connection", "/pty/", "/api/pty/"),
    LaterRouter("app.api.tui", "/tui/"),
)
ROUTERS = (*_FIRST, *_LATER, page.routes)


def load_all() -> None:
    """For who lists all routes."""
    for each in _LATER:
        each.load()


class Application(FastAPI):
    _describing = threading.Lock()

    def openapi(self) -> dict[str, Any]:
        """Made when it is asked for, once, be it by several threads."""
        with self._describing:
            if self.openapi_schema is None:
                load_all()
                _amend(super().openapi())
            assert self.openapi_schema is not None
            return self.openapi_schema


def _amend(description: dict[str, Any]) -> None:
    """FastAPI describes a 422 of every route that takes something. Here such a request is answered with a 400. Models of errors,
    which routes only name, are added."""
    for methods in description["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    schemas = description["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        del schemas[name]
    _, found = models_json_schema([(model, "serialization") for model in described], ref_template="#/components/schemas/{model}")
    description["components"]["schemas"] = dict(sorted({**found["$defs"], **schemas}.items()))
