"""Who may do what. Each route stands behind a gate: its dependencies are one of the lists below, which say who may use the route,
and when.

Only those who may see a session reach a route that names it, or a request that waits in it: for others it does not exist. Routes
that list things filter them themselves, by `Principal.visible_owner`.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, cast

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from app.api.audit import WHO
from app.events.telemetry.log_lines import SESSION_OF_LINES
from app.schema.errors import DirectoryForbidden, NotFound, ServiceError, TooMany
from app.server import Server
from app.users.principal import OPERATOR, Principal, Role
from app.util.project_files import resolved


def services_of(request: HTTPConnection) -> Server:
    return cast(Server, request.app.state.server)


PRINCIPAL = "opensession.principal"
"""The key in a request's scope for its principal."""


class ReadOnly(ServiceError):
    status = 403
    name = "ReadOnlyError"
    text = "This login may read and change nothing: it is a viewer's, or its token is read-only."


class AdminsOnly(ServiceError):
    status = 403
    name = "AdminsOnlyError"
    text = "Only an admin of this server may do this."


class RateLimited(TooMany):
    name = "RateLimitedError"

    def __init__(self, limit: str, seconds: int) -> None:
        super().__init__(f"More than {limit} prompts (OPENSESSION_PROMPT_RATE). Try again in {seconds} s.")
        self.retry_after = seconds


class Permitted(Enum):
    ANYONE = "whoever may log in, and where no login is needed everybody"
    WRITER = "who may change what is theirs"
    ADMIN_READER = "admins, with a read-only login too"
    ADMIN = "admins"


def principal_of(scope: Mapping[str, Any]) -> Principal:
    principal: Principal = scope.get(PRINCIPAL, OPERATOR)
    return principal


def require_access(principal: Principal, access: Permitted) -> None:
    """Raises ReadOnly, AdminsOnly."""
    if access in (Permitted.WRITER, Permitted.ADMIN) and not principal.may_write:
        raise ReadOnly
    if access in (Permitted.ADMIN_READER, Permitted.ADMIN) and principal.role is not Role.ADMIN:
        raise AdminsOnly


async def require_visible(app: Server, principal: Principal, parameters: Mapping[str, str]) -> None:
    """Raises NotFound, as for what does not exist, if the principal may not see what the path names."""
    if session_id := parameters.get("sessionID"):
        await require_session(app, principal, session_id)
    request_id = parameters.get("requestID") or parameters.get("permissionID")
    if request_id and not principal.may_see_all:
        await app.permissions.pending.require_visible(request_id, principal.may_see)


async def require_session(app: Server, principal: Principal, session_id: str) -> None:
    """Raises NotFound."""
    if not principal.may_see_all:
        await app.sessions.require_visible(session_id, principal.may_see)


async def directory_to_enter(app: Server, principal: Principal, directory: str | None) -> str | None:
    """The directory to work in, None for the server's own. A member whose roots do not have the server's own gets their first
    root. Raises DirectoryForbidden, whether there is such a directory or not."""
    if principal is OPERATOR:
        return directory
    await app.users.all()
    wanted = directory or app.workspaces.home
    if _leads_to_own(app, principal, wanted):
        return directory
    if directory is None and principal.roots:
        return principal.roots[0]
    raise DirectoryForbidden(f"{wanted} is not a directory that you may work in.", directory=directory)


def _leads_to_own(app: Server, principal: Principal, path: str) -> bool:
    try:
        return app.workspaces.admits(principal, resolved(path))
    except ValueError:  # the path has a NUL
        return False


class Gate:
    """Requires a role, and that the principal may see what the path names. Refuses a workspace in the query or in the header that
    OpenCode's clients send."""

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
        path = request.scope["path"]
        if path.startswith(_WITHOUT_WORKSPACE) or path == "/":
            return
        if name := request.query_params.get("workspace") or request.headers.get("x-opencode-workspace"):
            raise NotFound(f"Workspace not found: {name}. There are no workspaces here: name a directory")


_WITHOUT_WORKSPACE = ("/global/", "/api/", "/auth/", "/log", "/doc", "/mcp/oauth/", "/page/", "/s/")
"""The beginnings of paths about the whole server, or of routes that name a place in their own way."""


ADMIN = Gate(Permitted.ADMIN)


TAKEN = "opensession.taken"
"""The key in the scope of a request that starts work, for what counts it until its route has ended (json_route.py)."""


async def takes_work(request: Request) -> None:
    """Raises ServerStopping, once the body is read: a connection that is closed upon unread bytes is reset, and the client would
    not see the answer."""
    draining = services_of(request).draining
    if draining.has_begun:
        await request.body()
    draining.take()
    request.scope[TAKEN] = draining


async def takes_prompt(request: Request) -> None:
    """Counts a prompt of a user, and of the login that they use. Raises ServerStopping, RateLimited."""
    await takes_work(request)
    app, user = services_of(request), principal_of(request.scope).name
    limit = app.settings.prompt_rate
    if limit is None:
        return
    keys = [("prompts of user", user)] if user else []
    for key in [*keys, ("prompts of login", request.scope.get(WHO, ""))]:
        if seconds := await app.rates.hit(limit, *key):
            raise RateLimited(limit, seconds)


WORK = Depends(takes_work)
READS = [Depends(Gate(Permitted.ANYONE))]
ADMIN_READS = [Depends(Gate(Permitted.ADMIN_READER))]
WRITES_WHILE_STOPPING = [Depends(Gate(Permitted.WRITER))]
"""For what a running turn, or a client that follows it, may need while the server stops. Then all other writing is refused."""
WRITES = [*WRITES_WHILE_STOPPING, WORK]
PROMPTS = [*WRITES_WHILE_STOPPING, Depends(takes_prompt)]
MANAGES = [Depends(ADMIN), WORK]
