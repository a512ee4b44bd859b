"""Who may use which route of both APIs: what each route says for itself is held to this table."""

from collections.abc import Mapping

from every_route import api_routes
from fastapi import FastAPI
from fastapi.routing import APIRoute

from app.api.roles import Gate, Permitted

_READ = """
experimental.session.list session.list session.status session.get session.children session.todo session.diff session.messages
session.message share.session permission.list question.list event.subscribe global.event auth.eventToken global.health
lsp.status formatter.status mcp.status experimental.resource.list config.get config.providers provider.list provider.auth
path.get tui.control.next project.list project.current vcs.get app.agents command.list app.skills tool.ids tool.list find.text
find.files vcs.status vcs.diff vcs.diff.raw project.directories worktree.list experimental.capabilities.get
experimental.console.get experimental.console.listOrgs experimental.workspace.list experimental.workspace.adapter.list
experimental.workspace.status sync.history.list experimental.projectCopy.generateName find.messages find.symbols file.list
file.read file.status plugin.list usage.get webhook.list webhook.get webhook.deliveries session.export /doc / /s/{shareID}
/mcp/oauth/callback /mcp-server session.queue pty.shells pty.list pty.get v2.pty.list v2.pty.get v2.health.get v2.location.get
v2.agent.list v2.command.list v2.skill.list v2.reference.list v2.model.list v2.provider.list v2.provider.get v2.fs.find
v2.fs.list v2.fs.read v2.permission.request.list v2.permission.saved.list v2.session.permission.list v2.session.permission.get
v2.question.request.list v2.session.question.list v2.session.list v2.session.get v2.session.active v2.session.messages
v2.session.message v2.session.context v2.session.history v2.session.events v2.integration.list v2.integration.get
v2.integration.attempt.status v2.event.subscribe
"""
_WRITE = """
session.create session.import session.update session.delete session.fork session.abort session.prompt session.prompt_async
session.deleteMessage part.update part.delete session.command session.shell session.init session.summarize session.revert
vcs.apply project.initGit worktree.create worktree.remove worktree.reset experimental.session.background
experimental.console.switchOrg experimental.workspace.create experimental.workspace.syncList experimental.workspace.warp
experimental.workspace.remove sync.start sync.replay sync.steal experimental.controlPlane.moveSession v2.projectCopy.create
v2.projectCopy.remove v2.projectCopy.refresh provider.oauth.authorize provider.oauth.callback session.unrevert session.share
session.unshare permission.reply permission.respond question.reply question.reject app.log auth.set auth.remove webhook.create
webhook.update webhook.delete webhook.test session.dequeue session.editorFile session.editorText tui.appendPrompt
tui.submitPrompt tui.clearPrompt tui.openHelp tui.openSessions tui.openThemes tui.openModels tui.executeCommand tui.showToast
tui.selectSession tui.publish tui.control.response v2.permission.saved.remove v2.session.permission.create
v2.session.permission.reply v2.session.question.reply v2.session.question.reject v2.session.create v2.session.switchAgent
v2.session.switchModel v2.session.prompt v2.session.compact v2.session.wait v2.session.interrupt v2.session.revert.stage
v2.session.revert.clear v2.session.revert.commit pty.create pty.update pty.remove pty.connectToken pty.connect v2.pty.create
v2.pty.update v2.pty.remove v2.pty.connectToken v2.pty.connect v2.integration.connect.key v2.integration.connect.oauth
v2.integration.attempt.cancel v2.integration.attempt.complete v2.credential.update v2.credential.remove
"""
_MANAGE = """
global.config.update global.upgrade global.dispose instance.dispose config.update project.update session.prune mcp.add
mcp.connect mcp.disconnect mcp.auth.start mcp.auth.callback mcp.auth.authenticate mcp.auth.remove
"""
ROLES: Mapping[str, Permitted] = {
    operation: access
    for access, operations in (
        (Permitted.ANYONE, _READ),
        (Permitted.WRITER, _WRITE),
        (Permitted.ADMIN_READER, "metrics global.config.get"),
        (Permitted.ADMIN, _MANAGE),
    )
    for operation in operations.split()
}
"""By the operation's id, or the path of a route that is not described."""


def roles_of(app: FastAPI) -> dict[str, list[Permitted]]:
    """By the same names: what each route asks for, which is one role."""
    gates = {operation_of(route): [each.dependency for each in route.dependencies] for route in api_routes(app)}
    return {name: [gate.permitted for gate in found if isinstance(gate, Gate)] for name, found in gates.items()}


def operation_of(route: APIRoute) -> str:
    return route.unique_id if route.include_in_schema else route.path_format
