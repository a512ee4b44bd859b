"""Who may do what: one gate that every route stands behind.

`ACCESS` has every operation; one that is missing is for admins. A route that names a session, or a request that waits for an
answer, is reached by those alone who may see it: for others there is no such thing. What a route lists it filters itself, by
`Principal.visible_owner`.
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


_READ = (
    "experimental.session.list "
    "session.list session.status session.get session.children session.todo session.diff session.messages session.message "
    "share.session permission.list question.list event.subscribe global.event auth.eventToken global.health lsp.status "
    "formatter.status mcp.status experimental.resource.list config.get config.providers provider.list provider.auth path.get "
    "tui.control.next "
    "project.list project.current vcs.get app.agents command.list app.skills tool.ids tool.list find.text find.files "
    "vcs.status vcs.diff vcs.diff.raw project.directories worktree.list experimental.capabilities.get experimental.console.get "
    "experimental.console.listOrgs experimental.workspace.list experimental.workspace.adapter.list experimental.workspace.status "
    "sync.history.list experimental.projectCopy.generateName "
    "find.messages find.symbols file.list file.read file.status plugin.list usage.get webhook.list webhook.get "
    "webhook.deliveries session.export /doc / /page/{name} /s/{shareID} /mcp/oauth/callback "
    "session.queue pty.shells pty.list pty.get v2.pty.list v2.pty.get "
    "v2.health.get v2.location.get v2.agent.list v2.command.list v2.skill.list v2.reference.list v2.model.list v2.provider.list "
    "v2.provider.get v2.fs.find v2.fs.list v2.fs.read "
    "v2.permission.request.list v2.permission.saved.list v2.session.permission.list v2.session.permission.get "
    "v2.question.request.list v2.session.question.list v2.session.list v2.session.get v2.session.active "
    "v2.session.messages v2.session.message v2.session.context v2.session.history v2.session.events v2.integration.list "
    "v2.integration.get v2.integration.attempt.status v2.event.subscribe"
)
_WRITE = (
    "session.create session.import session.update session.delete session.fork session.abort session.prompt session.prompt_async "
    "session.deleteMessage part.update part.delete session.command session.shell session.init session.summarize session.revert "
    "vcs.apply project.initGit worktree.create worktree.remove worktree.reset "
    "experimental.session.background experimental.console.switchOrg experimental.workspace.create "
    "experimental.workspace.syncList experimental.workspace.warp experimental.workspace.remove sync.start sync.replay sync.steal "
    "experimental.controlPlane.moveSession v2.projectCopy.create v2.projectCopy.remove v2.projectCopy.refresh "
    "provider.oauth.authorize provider.oauth.callback "
    "session.unrevert session.share session.unshare permission.reply permission.respond question.reply question.reject app.log "
    "auth.set auth.remove webhook.create webhook.update webhook.delete webhook.test "
    "session.dequeue "
    "tui.appendPrompt tui.submitPrompt tui.clearPrompt tui.openHelp tui.openSessions tui.openThemes tui.openModels "
    "tui.executeCommand tui.showToast tui.selectSession tui.publish tui.control.response "
    "v2.permission.saved.remove v2.session.permission.create v2.session.permission.reply v2.session.question.reply "
    "v2.session.question.reject v2.session.create v2.session.switchAgent v2.session.switchModel v2.session.prompt "
    "v2.session.compact v2.session.wait v2.session.interrupt v2.session.revert.stage v2.session.revert.clear "
    "v2.session.revert.commit pty.create pty.update pty.remove pty.connectToken pty.connect v2.pty.create v2.pty.update "
    "v2.pty.remove v2.pty.connectToken v2.pty.connect v2.integration.connect.key v2.integration.connect.oauth "
    "v2.integration.attempt.cancel v2.integration.attempt.complete v2.credential.update v2.credential.remove"
)
_MANAGE = (
    "global.config.update global.upgrade "
    "global.dispose instance.dispose config.update project.update session.prune mcp.add mcp.connect mcp.disconnect "
    "mcp.auth.start mcp.auth.callback mcp.auth.authenticate mcp.auth.remove"
)
ACCESS: Mapping[str, Permitted] = {
    operation: access
    for access, operations in (
        (Permitted.ANYONE, _READ),
        (Permitted.WRITER, _WRITE),
        (Permitted.ADMIN_READER, "metrics global.config.get"),
        (Permitted.ADMIN, _MANAGE),
    )
    for operation in operations.split()
}
"""By the operation's id, or the path of a route that has none."""


PROMPTING = frozenset(
    [
        "session.prompt",
        "session.prompt_async",
        "session.command",
        "session.shell",
        "session.init",
        "session.summarize",
        "v2.session.prompt",
        "v2.session.compact",
    ]
)
"""What the rate of prompts is a limit of."""


def access_of(operation: str) -> Permitted:
    return ACCESS.get(operation, Permitted.ADMIN)


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
        await app.sessions.service.require_visible(session_id, principal.may_see)


async def _require_request(app: "Services", principal: Principal, request_id: str) -> None:
    await app.pending.permissions.pending.require_visible(request_id, principal.may_see)


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
        if seconds := await app.users.rates.hit(limit, *key):
            raise RateLimited(limit, seconds)


async def directory_to_enter(app: "Services", principal: Principal, directory: str | None) -> str | None:
    """The directory to work in, None for the server's own: of a member whose roots do not have that, the first root. Raises
    DirectoryForbidden, whether there is such a directory or not."""
    if principal is OPERATOR:
        return directory
    await app.users.users.all()
    wanted = directory or app.directories.instances.workspaces.home
    if _leads_to_own(app, principal, wanted):
        return directory
    if directory is None and principal.roots:
        return principal.roots[0]
    raise DirectoryForbidden(f"{wanted} is not a directory that you may work in.", directory=directory)


def _leads_to_own(app: "Services", principal: Principal, path: str) -> bool:
    try:
        return may_enter(app, principal, os.path.realpath(path))
    except OSError:  # a link on the way became something else while it was read
        return False


async def roots_below(app: "Services", principal: Principal, real: str) -> list[str]:
    """The principal's roots below a directory that they may not work in themselves. `real`: the directory without symlinks."""
    if principal is not OPERATOR:
        await app.users.users.all()
    return app.directories.instances.workspaces.roots_below(principal, real)


def may_enter(app: "Services", principal: Principal, real: str) -> bool:
    """Of a path without symlinks."""
    return app.directories.instances.workspaces.admits(principal, real)
