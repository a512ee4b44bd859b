"""The routers of both APIs, in the order in which a request is matched against them: what is asked for most stands first."""

from app.api import (
    ask,
    config,
    directory,
    event,
    file,
    message,
    page,
    server,
    session,
    session_actions,
    vcs,
)
from app.api.json_route import LaterRouter

_FIRST = (
    message.routes,
    session.routes,
    session_actions.routes,
    event.routes,
    server.routes,
    ask.permissions,
    ask.questions,
    config.routes,
    directory.project,
    directory.routes,
    vcs.routes,
    file.routes,
    event.tokens,
    config.global_config,
    config.auth,
    session.everywhere,
)
_LATER = (
    LaterRouter("app.api.v2.all_routes", "/api/"),
    LaterRouter("app.api.absent", "/experimental/", "/global/upgrade", "/provider/", "/sync/"),
    LaterRouter("app.api.worktree", "/experimental/worktree"),
    LaterRouter("app.api.search", "/find/message"),
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


def load() -> None:
    """For who lists all routes."""
    for each in _LATER:
        each.load()
