"""Who may do what: the rules of the gate that every route stands behind (roles.py).

A route that names a session, or a request that waits for an answer, is reached by those alone who may see it: for others there is
no such thing. What a route lists it filters itself, by `Principal.visible_owner`.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from app.schema.errors import DirectoryForbidden, ServiceError, TooMany
from app.users.principal import OPERATOR, Principal, Role

if TYPE_CHECKING:
    from app.api.services import Services

PRINCIPAL = "opensession.principal"
"""Where in a request's scope the one is noted who makes it."""


class ReadOnly(ServiceError):
    status = 403
    name = "ReadOnlyError"

    def __init__(self) -> None:
        super().__init__("This login may read and change nothing: it is a viewer's, or its token is read-only.")


class AdminsOnly(ServiceError):
    status = 403
    name = "AdminsOnlyError"

    def __init__(self) -> None:
        super().__init__("Only an admin of this server may do this.")


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
    if access is Permitted.ANYONE:
        return
    if access is Permitted.ADMIN_READER:
        if principal.role is not Role.ADMIN:
            raise AdminsOnly
        return
    if not principal.may_write:
        raise ReadOnly
    if access is Permitted.ADMIN and not principal.may_manage:
        raise AdminsOnly


async def require_visible(app: "Services", principal: Principal, parameters: Mapping[str, str]) -> None:
    """Of what the path names. Raises NotFound, as for what does not exist."""
    if principal.may_see_all:
        return
    for name, of_parameter in _NAMED.items():
        if name in parameters:
            await of_parameter(app, principal, parameters[name])


async def require_session(app: "Services", principal: Principal, session_id: str) -> None:
    """Raises NotFound."""
    if not principal.may_see_all:
        await app.sessions.require_visible(session_id, principal.may_see)


async def _require_request(app: "Services", principal: Principal, request_id: str) -> None:
    await app.permissions.pending.require_visible(request_id, principal.may_see)


_NAMED: Mapping[str, Callable[["Services", Principal, str], Awaitable[None]]] = {
    "sessionID": require_session,
    "requestID": _require_request,
    "permissionID": _require_request,
}


async def require_rate(app: "Services", principal: Principal, who: str) -> None:
    """Counts a prompt of a user, and of the login `who` that they use. Raises RateLimited."""
    limit = app.settings.prompt_rate
    if limit is None:
        return
    keys = [("prompts of user", principal.name)] if principal.name else []
    for key in [*keys, ("prompts of login", who)]:
        if seconds := await app.rates.hit(limit, *key):
            raise RateLimited(limit, seconds)


async def directory_to_enter(app: "Services", principal: Principal, directory: str | None) -> str | None:
    """The directory to work in, None for the server's own: of a member whose roots do not have that, the first root. Raises
    DirectoryForbidden, whether there is such a directory or not."""
    if principal is OPERATOR:
        return directory
    await app.users.all()
    wanted = directory or app.workspaces.home
    if _leads_to_own(app, principal, wanted):
        return directory
    if directory is None and principal.roots:
        return principal.roots[0]
    raise DirectoryForbidden(f"{wanted} is not a directory that you may work in.", directory=directory)


def _leads_to_own(app: "Services", principal: Principal, path: str) -> bool:
    try:
        return app.workspaces.admits(principal, os.path.realpath(path))
    except OSError:  # a link on the way became something else while it was read
        return False
