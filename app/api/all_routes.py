"""The routers of both APIs, in the order in which a request is matched against them: what is asked for most stands first."""

from app.api import (
    all_sessions,
    ask,
    config,
    directory,
    event,
    file,
    message,
    metrics,
    page,
    plugin,
    server,
    session,
    session_actions,
    vcs,
)
from app.api.json_route import LaterRouter

_FIRST = (
    session.routes,
    message.routes,
    event.routes,
    server.routes,
    session_actions.routes,
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
    all_sessions.routes,
)
_LATER = (
    LaterRouter("app.api.v2.all_routes", "/api/"),
    LaterRouter("app.api.absent", "/experimental/", "/global/upgrade", "/provider/", "/sync/"),
    LaterRouter("app.api.worktree", "/experimental/worktree"),
    LaterRouter("app.api.search", "/find/message"),
    LaterRouter("app.api.mcp", "/mcp", "/experimental/resource"),
    LaterRouter("app.api.share", "/session/", "/s/"),
    LaterRouter("app.api.transfer", "/session/"),
    LaterRouter("app.api.usage", "/usage"),
    LaterRouter("app.api.retention", "/prune"),
    LaterRouter("app.api.webhook", "/webhook"),
    LaterRouter("app.api.terminals", "/pty"),
    LaterRouter("app.api.terminal_connection", "/pty/", "/api/pty/"),
    LaterRouter("app.api.tui", "/tui/"),
)
ROUTERS = (*_FIRST, *_LATER, page.routes, plugin.routes, metrics.routes)


def load() -> None:
    """For who lists all routes."""
    for each in _LATER:
        each.load()
