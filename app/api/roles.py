"""Who may use a route, and when: each route names one of these lists as its dependencies."""

from fastapi import Depends, Request

from app.api.access import Permitted, principal_of, require_access, require_rate, require_visible
from app.api.audit import WHO
from app.api.services import services_of
from app.schema.errors import NotFound
from app.telemetry.log_lines import SESSION_OF_LINES
from app.users.principal import OPERATOR


class Gate:
    """Whoever it is for, what the path names must be theirs to see."""

    def __init__(self, permitted: Permitted) -> None:
        self.permitted = permitted

    async def __call__(self, request: Request) -> None:
        """Raises ReadOnly, AdminsOnly, NotFound."""
        if session_id := request.path_params.get("sessionID"):
            SESSION_OF_LINES.set(session_id)
        principal = principal_of(request.scope)
        if principal is not OPERATOR:
            require_access(principal, self.permitted)
            await require_visible(services_of(request), principal, request.path_params)
        _require_no_workspace(request)


_WITHOUT_WORKSPACE = ("/global/", "/api/", "/auth/", "/log", "/doc", "/mcp/oauth/", "/page/", "/s/")
"""The paths of what is about the whole server, or has its own way of naming a place."""


def _require_no_workspace(request: Request) -> None:
    """By the query, else by the header that OpenCode's clients send. Raises NotFound."""
    if request.scope["path"].startswith(_WITHOUT_WORKSPACE) or request.scope["path"] == "/":
        return
    if name := request.query_params.get("workspace") or request.headers.get("x-opencode-workspace"):
        raise NotFound(f"Workspace not found: {name}. There are no workspaces here: name a directory")


ADMIN = Gate(Permitted.ADMIN)


TAKEN = "opensession.taken"
"""In the scope of a request that starts work: what it is counted by until its route has ended (json_route.py)."""


async def takes_work(request: Request) -> None:
    """Raises ServerStopping, once the body is read: a connection closed upon unread bytes is reset, and the client would not hear
    why."""
    draining = services_of(request).draining
    if draining.has_begun:
        await request.body()
    draining.take()
    request.scope[TAKEN] = draining


async def takes_prompt(request: Request) -> None:
    """Raises ServerStopping, RateLimited."""
    await takes_work(request)
    await require_rate(services_of(request), principal_of(request.scope), request.scope.get(WHO, ""))


WORK = Depends(takes_work)
READS = [Depends(Gate(Permitted.ANYONE))]
ADMIN_READS = [Depends(Gate(Permitted.ADMIN_READER))]
ANSWERS = [Depends(Gate(Permitted.WRITER))]
"""What a running turn, or a client that follows it, may need while the server stops. All else that may write is refused then."""
WRITES = [*ANSWERS, WORK]
PROMPTS = [*ANSWERS, Depends(takes_prompt)]
MANAGES = [Depends(ADMIN), WORK]
