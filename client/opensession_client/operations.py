"""Every operation of the API, generated from openapi.yaml by `make openapi`: `client.call(operations.session_get(id))`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from opensession_client import models
from opensession_client.operation import Operation, segment


def session_messages(
    session_id: str, *, limit: float | None = None, before: str | None = None
) -> Operation[list[models.MessageWithParts]]:
    """GET /session/{sessionID}/message"""
    return Operation(
        "GET", f"/session/{segment(session_id)}/message", list[models.MessageWithParts], query={"limit": limit, "before": before}
    )


def session_prompt(
    session_id: str, body: models.PromptInput, *, directory: str | None = None
) -> Operation[models.MessageWithParts]:
    """POST /session/{sessionID}/message

    An invalid prompt gets an error status at once. Otherwise the body is one JSON document, which is complete when the turn
    has ended (with `noReply` at once).
    """
    return Operation(
        "POST", f"/session/{segment(session_id)}/message", models.MessageWithParts, query={"directory": directory}, body=body
    )


def session_prompt_async(session_id: str, body: models.PromptInput, *, directory: str | None = None) -> Operation[None]:
    """POST /session/{sessionID}/prompt_async"""
    return Operation("POST", f"/session/{segment(session_id)}/prompt_async", None, query={"directory": directory}, body=body)


def session_queue(session_id: str) -> Operation[list[models.QueuedPrompt]]:
    """GET /session/{sessionID}/queue

    The prompts that wait for a turn of their own, in the order of their turns.
    """
    return Operation("GET", f"/session/{segment(session_id)}/queue", list[models.QueuedPrompt])


def session_dequeue(session_id: str, queued_id: str) -> Operation[bool]:
    """DELETE /session/{sessionID}/queue/{queuedID}"""
    return Operation("DELETE", f"/session/{segment(session_id)}/queue/{segment(queued_id)}", bool)


def session_message(session_id: str, message_id: str) -> Operation[models.MessageWithParts]:
    """GET /session/{sessionID}/message/{messageID}"""
    return Operation("GET", f"/session/{segment(session_id)}/message/{segment(message_id)}", models.MessageWithParts)


def session_delete_message(session_id: str, message_id: str, *, directory: str | None = None) -> Operation[bool]:
    """DELETE /session/{sessionID}/message/{messageID}"""
    return Operation(
        "DELETE", f"/session/{segment(session_id)}/message/{segment(message_id)}", bool, query={"directory": directory}
    )


def part_update(
    session_id: str, message_id: str, part_id: str, body: models.Part, *, directory: str | None = None
) -> Operation[models.Part]:
    """PATCH /session/{sessionID}/message/{messageID}/part/{partID}"""
    return Operation(
        "PATCH",
        f"/session/{segment(session_id)}/message/{segment(message_id)}/part/{segment(part_id)}",
        models.Part,
        query={"directory": directory},
        body=body,
    )


def part_delete(session_id: str, message_id: str, part_id: str, *, directory: str | None = None) -> Operation[bool]:
    """DELETE /session/{sessionID}/message/{messageID}/part/{partID}"""
    return Operation(
        "DELETE",
        f"/session/{segment(session_id)}/message/{segment(message_id)}/part/{segment(part_id)}",
        bool,
        query={"directory": directory},
    )


def session_list(
    *,
    directory: str | None = None,
    scope: Literal["project"] | None = None,
    path: str | None = None,
    roots: str | None = None,
    start: float | None = None,
    search: str | None = None,
    limit: float | None = None,
    cursor: str | None = None,
) -> Operation[list[models.Session]]:
    """GET /session"""
    return Operation(
        "GET",
        "/session",
        list[models.Session],
        query={
            "directory": directory,
            "scope": scope,
            "path": path,
            "roots": roots,
            "start": start,
            "search": search,
            "limit": limit,
            "cursor": cursor,
        },
    )


def session_create(body: models.CreateInput | None = None, *, directory: str | None = None) -> Operation[models.Session]:
    """POST /session

    An unknown agent or model is refused, as in a prompt.
    """
    return Operation("POST", "/session", models.Session, query={"directory": directory}, body=body)


def session_status(*, directory: str | None = None) -> Operation[dict[str, models.SessionStatus]]:
    """GET /session/status"""
    return Operation("GET", "/session/status", dict[str, models.SessionStatus], query={"directory": directory})


def session_get(session_id: str) -> Operation[models.Session]:
    """GET /session/{sessionID}"""
    return Operation("GET", f"/session/{segment(session_id)}", models.Session)


def session_update(
    session_id: str, body: models.UpdateInput | None = None, *, directory: str | None = None
) -> Operation[models.Session]:
    """PATCH /session/{sessionID}"""
    return Operation("PATCH", f"/session/{segment(session_id)}", models.Session, query={"directory": directory}, body=body)


def session_delete(session_id: str, *, directory: str | None = None) -> Operation[bool]:
    """DELETE /session/{sessionID}

    What runs in the session or its descendants is aborted first. What is prompted meanwhile is deleted too, or gets a 404.
    """
    return Operation("DELETE", f"/session/{segment(session_id)}", bool, query={"directory": directory})


def session_children(session_id: str) -> Operation[list[models.Session]]:
    """GET /session/{sessionID}/children"""
    return Operation("GET", f"/session/{segment(session_id)}/children", list[models.Session])


def session_todo(session_id: str) -> Operation[list[models.Todo]]:
    """GET /session/{sessionID}/todo"""
    return Operation("GET", f"/session/{segment(session_id)}/todo", list[models.Todo])


def session_diff(session_id: str, *, message_id: str | None = None) -> Operation[list[models.FileDiff]]:
    """GET /session/{sessionID}/diff"""
    return Operation("GET", f"/session/{segment(session_id)}/diff", list[models.FileDiff], query={"messageID": message_id})


def session_fork(
    session_id: str, body: models.ForkInput | None = None, *, directory: str | None = None
) -> Operation[models.Session]:
    """POST /session/{sessionID}/fork"""
    return Operation("POST", f"/session/{segment(session_id)}/fork", models.Session, query={"directory": directory}, body=body)


def session_abort(session_id: str) -> Operation[bool]:
    """POST /session/{sessionID}/abort

    Answers when the session is idle and its record finished. An idle or unknown session is idle already.
    """
    return Operation("POST", f"/session/{segment(session_id)}/abort", bool)


def session_command(
    session_id: str, body: models.CommandInput, *, directory: str | None = None
) -> Operation[models.MessageWithParts]:
    """POST /session/{sessionID}/command"""
    return Operation(
        "POST", f"/session/{segment(session_id)}/command", models.MessageWithParts, query={"directory": directory}, body=body
    )


def session_shell(
    session_id: str, body: models.ShellInput, *, directory: str | None = None
) -> Operation[models.MessageWithParts]:
    """POST /session/{sessionID}/shell"""
    return Operation(
        "POST", f"/session/{segment(session_id)}/shell", models.MessageWithParts, query={"directory": directory}, body=body
    )


def session_init(session_id: str, body: models.InitInput, *, directory: str | None = None) -> Operation[bool]:
    """POST /session/{sessionID}/init"""
    return Operation("POST", f"/session/{segment(session_id)}/init", bool, query={"directory": directory}, body=body)


def session_summarize(session_id: str, body: models.SummarizeInput, *, directory: str | None = None) -> Operation[bool]:
    """POST /session/{sessionID}/summarize"""
    return Operation("POST", f"/session/{segment(session_id)}/summarize", bool, query={"directory": directory}, body=body)


def session_revert(session_id: str, body: models.RevertInput, *, directory: str | None = None) -> Operation[models.Session]:
    """POST /session/{sessionID}/revert

    With `dryRun` nothing is touched: `revert.diff` shows what would change in the files.
    """
    return Operation("POST", f"/session/{segment(session_id)}/revert", models.Session, query={"directory": directory}, body=body)


def session_unrevert(session_id: str, *, directory: str | None = None) -> Operation[models.Session]:
    """POST /session/{sessionID}/unrevert"""
    return Operation("POST", f"/session/{segment(session_id)}/unrevert", models.Session, query={"directory": directory})


def global_health(*, replicas: bool | None = None) -> Operation[models.Health]:
    """GET /global/health

    Whether this server can serve: 503 while it stops, while its database accepts no writes, or no thread is free.
    """
    return Operation("GET", "/global/health", models.Health, query={"replicas": replicas})


def global_dispose() -> Operation[bool]:
    """POST /global/dispose"""
    return Operation("POST", "/global/dispose", bool)


def app_log(body: models.LogEntry) -> Operation[bool]:
    """POST /log"""
    return Operation("POST", "/log", bool, body=body)


def lsp_status(*, directory: str | None = None) -> Operation[list[models.LSPStatus]]:
    """GET /lsp

    The directory's language servers that have started. A server starts when the first file of its language is used.
    """
    return Operation("GET", "/lsp", list[models.LSPStatus], query={"directory": directory})


def formatter_status(*, directory: str | None = None) -> Operation[list[models.FormatterStatus]]:
    """GET /formatter

    Formatters that may run. `enabled`: its command is configured; or the project uses it, its program is there and works.
    """
    return Operation("GET", "/formatter", list[models.FormatterStatus], query={"directory": directory})


def usage_get(
    *,
    since: int | None = None,
    until: int | None = None,
    group: Literal["model", "provider", "day", "session", "directory", "agent"] | None = None,
) -> Operation[models.UsageReport]:
    """GET /usage

    What model calls cost, in tokens and dollars; members see their own. Usage stays counted when its session is deleted, and
    stays its former owner's when the session is given to another user.
    """
    return Operation("GET", "/usage", models.UsageReport, query={"since": since, "until": until, "group": group})


def session_prune(body: models.PruneInput) -> Operation[models.PruneReport]:
    """POST /prune

    Deletes sessions that nobody has used for `olderThanDays`, in whole trees: each with its descendants. A tree in which one
    session runs, is shared or `pinned` is kept. The deletion goes on if the client disconnects.
    """
    return Operation("POST", "/prune", models.PruneReport, body=body)


def metrics() -> Operation[bytes]:
    """GET /metrics

    The figures of this one server, in Prometheus' format; for admins.
    """
    return Operation("GET", "/metrics", bytes)


def permission_list(*, directory: str | None = None) -> Operation[list[models.PermissionRequest]]:
    """GET /permission"""
    return Operation("GET", "/permission", list[models.PermissionRequest], query={"directory": directory})


def permission_reply(request_id: str, body: models.ReplyInput) -> Operation[bool]:
    """POST /permission/{requestID}/reply"""
    return Operation("POST", f"/permission/{segment(request_id)}/reply", bool, body=body)


def permission_respond(session_id: str, permission_id: str, body: models.RespondInput) -> Operation[bool]:
    """POST /session/{sessionID}/permissions/{permissionID}"""
    return Operation("POST", f"/session/{segment(session_id)}/permissions/{segment(permission_id)}", bool, body=body)


def question_list(*, directory: str | None = None) -> Operation[list[models.QuestionRequest]]:
    """GET /question"""
    return Operation("GET", "/question", list[models.QuestionRequest], query={"directory": directory})


def question_reply(request_id: str, body: models.AnswerInput) -> Operation[bool]:
    """POST /question/{requestID}/reply"""
    return Operation("POST", f"/question/{segment(request_id)}/reply", bool, body=body)


def question_reject(request_id: str) -> Operation[bool]:
    """POST /question/{requestID}/reject"""
    return Operation("POST", f"/question/{segment(request_id)}/reject", bool)


def session_editor_file(session_id: str) -> Operation[models.EditorFile]:
    """GET /session/{sessionID}/editor

    Long-polls for the next file that the agent reads in the session. A client with an editor answers with its unsaved text,
    which is read instead of the stored text. If the server stops, the body is an error.
    """
    return Operation("GET", f"/session/{segment(session_id)}/editor", models.EditorFile)


def session_editor_text(session_id: str, body: models.EditorFileText) -> Operation[bool]:
    """POST /session/{sessionID}/editor

    The text that the editor shows of the file. `false`: the tool no longer waits for this text.
    """
    return Operation("POST", f"/session/{segment(session_id)}/editor", bool, body=body)


def config_get(*, directory: str | None = None) -> Operation[models.Config]:
    """GET /config"""
    return Operation("GET", "/config", models.Config, query={"directory": directory})


def config_update(body: dict[str, Any], *, directory: str | None = None) -> Operation[models.Config]:
    """PATCH /config

    Change the directory's own configuration file; keys that the body does not name stay as they are.
    """
    return Operation("PATCH", "/config", models.Config, query={"directory": directory}, body=body)


def config_providers(*, directory: str | None = None) -> Operation[models.ConnectedProviders]:
    """GET /config/providers"""
    return Operation("GET", "/config/providers", models.ConnectedProviders, query={"directory": directory})


def provider_list(*, directory: str | None = None) -> Operation[models.ProviderList]:
    """GET /provider"""
    return Operation("GET", "/provider", models.ProviderList, query={"directory": directory})


def provider_auth(*, directory: str | None = None) -> Operation[dict[str, list[models.ProviderAuthMethod]]]:
    """GET /provider/auth"""
    return Operation("GET", "/provider/auth", dict[str, list[models.ProviderAuthMethod]], query={"directory": directory})


def project_list() -> Operation[list[models.Project]]:
    """GET /project"""
    return Operation("GET", "/project", list[models.Project])


def project_current(*, directory: str | None = None) -> Operation[models.Project]:
    """GET /project/current"""
    return Operation("GET", "/project/current", models.Project, query={"directory": directory})


def project_directories(project_id: str) -> Operation[list[models.ProjectDirectory]]:
    """GET /project/{projectID}/directories

    The known checkouts of a project; none of an unknown project.
    """
    return Operation("GET", f"/project/{segment(project_id)}/directories", list[models.ProjectDirectory])


def project_init_git(*, directory: str | None = None) -> Operation[models.Project]:
    """POST /project/git/init

    Make the directory a git repository, unless it is in one.
    """
    return Operation("POST", "/project/git/init", models.Project, query={"directory": directory})


def project_update(project_id: str, body: models.ProjectUpdate) -> Operation[models.Project]:
    """PATCH /project/{projectID}"""
    return Operation("PATCH", f"/project/{segment(project_id)}", models.Project, body=body)


def path_get(*, directory: str | None = None) -> Operation[models.Paths]:
    """GET /path"""
    return Operation("GET", "/path", models.Paths, query={"directory": directory})


def app_agents(*, directory: str | None = None) -> Operation[list[models.Agent]]:
    """GET /agent"""
    return Operation("GET", "/agent", list[models.Agent], query={"directory": directory})


def command_list(*, directory: str | None = None) -> Operation[list[models.Command]]:
    """GET /command

    The directory's own commands and its MCP servers' prompts.
    """
    return Operation("GET", "/command", list[models.Command], query={"directory": directory})


def app_skills(*, directory: str | None = None) -> Operation[list[models.Skill]]:
    """GET /skill"""
    return Operation("GET", "/skill", list[models.Skill], query={"directory": directory})


def plugin_list(*, directory: str | None = None) -> Operation[list[models.ExtensionStatus]]:
    """GET /plugin

    What became of the plugins and tool files that the directory's configuration names.
    """
    return Operation("GET", "/plugin", list[models.ExtensionStatus], query={"directory": directory})


def tool_ids(*, directory: str | None = None) -> Operation[list[str]]:
    """GET /experimental/tool/ids"""
    return Operation("GET", "/experimental/tool/ids", list[str], query={"directory": directory})


def tool_list(*, provider: str, model: str, directory: str | None = None) -> Operation[list[models.ToolListItem]]:
    """GET /experimental/tool"""
    return Operation(
        "GET",
        "/experimental/tool",
        list[models.ToolListItem],
        query={"provider": provider, "model": model, "directory": directory},
    )


def instance_dispose(*, directory: str | None = None) -> Operation[bool]:
    """POST /instance/dispose

    Stop what runs in a directory and close it; the next request opens it anew.
    """
    return Operation("POST", "/instance/dispose", bool, query={"directory": directory})


def auth_event_token() -> Operation[models.EventToken]:
    """POST /auth/event-token

    A login for one stream that is opened within half a minute, `GET /event?token=…`: an EventSource can send no header.
    """
    return Operation("POST", "/auth/event-token", models.EventToken)


def global_config_get() -> Operation[models.Config]:
    """GET /global/config

    The user's own configuration, which holds in all directories.
    """
    return Operation("GET", "/global/config", models.Config)


def global_config_update(body: dict[str, Any]) -> Operation[models.Config]:
    """PATCH /global/config

    Change the user's own configuration file; keys that the body does not name stay as they are.
    """
    return Operation("PATCH", "/global/config", models.Config, body=body)


def auth_set(provider_id: str, body: models.Credentials) -> Operation[bool]:
    """PUT /auth/{providerID}

    A member's own key is stored for them, encrypted. The server's key is kept in the data directory in a file that only the
    server's user can read.
    """
    return Operation("PUT", f"/auth/{segment(provider_id)}", bool, body=body)


def auth_remove(provider_id: str) -> Operation[bool]:
    """DELETE /auth/{providerID}"""
    return Operation("DELETE", f"/auth/{segment(provider_id)}", bool)


def experimental_session_list(
    *,
    directory: str | None = None,
    roots: bool | None = None,
    start: float | None = None,
    cursor: float | None = None,
    search: str | None = None,
    limit: float | None = None,
    archived: bool | None = None,
) -> Operation[list[models.GlobalSession]]:
    """GET /experimental/session"""
    return Operation(
        "GET",
        "/experimental/session",
        list[models.GlobalSession],
        query={
            "directory": directory,
            "roots": roots,
            "start": start,
            "cursor": cursor,
            "search": search,
            "limit": limit,
            "archived": archived,
        },
    )


def experimental_capabilities_get(*, directory: str | None = None) -> Operation[models.ExperimentalCapabilities]:
    """GET /experimental/capabilities"""
    return Operation("GET", "/experimental/capabilities", models.ExperimentalCapabilities, query={"directory": directory})


def experimental_console_get(*, directory: str | None = None) -> Operation[models.ConsoleState]:
    """GET /experimental/console"""
    return Operation("GET", "/experimental/console", models.ConsoleState, query={"directory": directory})


def experimental_console_list_orgs(*, directory: str | None = None) -> Operation[models.ConsoleOrganisations]:
    """GET /experimental/console/orgs"""
    return Operation("GET", "/experimental/console/orgs", models.ConsoleOrganisations, query={"directory": directory})


def experimental_workspace_list(*, directory: str | None = None) -> Operation[list[models.NamedWorkspace]]:
    """GET /experimental/workspace"""
    return Operation("GET", "/experimental/workspace", list[models.NamedWorkspace], query={"directory": directory})


def experimental_workspace_create(body: models.WorkspaceInput) -> Operation[models.NamedWorkspace]:
    """POST /experimental/workspace"""
    return Operation("POST", "/experimental/workspace", models.NamedWorkspace, body=body)


def experimental_workspace_adapter_list(*, directory: str | None = None) -> Operation[list[models.WorkspaceAdapter]]:
    """GET /experimental/workspace/adapter"""
    return Operation("GET", "/experimental/workspace/adapter", list[models.WorkspaceAdapter], query={"directory": directory})


def experimental_workspace_status(*, directory: str | None = None) -> Operation[list[models.WorkspaceConnection]]:
    """GET /experimental/workspace/status"""
    return Operation("GET", "/experimental/workspace/status", list[models.WorkspaceConnection], query={"directory": directory})


def experimental_workspace_sync_list(*, directory: str | None = None) -> Operation[None]:
    """POST /experimental/workspace/sync-list"""
    return Operation("POST", "/experimental/workspace/sync-list", None, query={"directory": directory})


def experimental_console_switch_org(body: models.ConsoleSwitch) -> Operation[bool]:
    """POST /experimental/console/switch"""
    return Operation("POST", "/experimental/console/switch", bool, body=body)


def experimental_workspace_remove(id: str) -> Operation[models.NamedWorkspace]:
    """DELETE /experimental/workspace/{id}"""
    return Operation("DELETE", f"/experimental/workspace/{segment(id)}", models.NamedWorkspace)


def experimental_session_background(session_id: str) -> Operation[bool]:
    """POST /experimental/session/{sessionID}/background

    False: subagents are waited for, none is sent to the background.
    """
    return Operation("POST", f"/experimental/session/{segment(session_id)}/background", bool)


def experimental_workspace_warp(body: models.WorkspaceWarp) -> Operation[None]:
    """POST /experimental/workspace/warp

    Without an id it detaches the session from its workspace: no session here is in one.
    """
    return Operation("POST", "/experimental/workspace/warp", None, body=body)


def experimental_control_plane_move_session(body: models.SessionMove) -> Operation[None]:
    """POST /experimental/control-plane/move-session

    Allowed only to the directory where the session is already.
    """
    return Operation("POST", "/experimental/control-plane/move-session", None, body=body)


def v2_project_copy_create(project_id: str, body: models.ProjectCopyInput) -> Operation[models.ProjectCopy]:
    """POST /experimental/project/{projectID}/copy"""
    return Operation("POST", f"/experimental/project/{segment(project_id)}/copy", models.ProjectCopy, body=body)


def v2_project_copy_remove(project_id: str, body: models.ProjectCopyRemoval) -> Operation[None]:
    """DELETE /experimental/project/{projectID}/copy"""
    return Operation("DELETE", f"/experimental/project/{segment(project_id)}/copy", None, body=body)


def v2_project_copy_refresh(project_id: str) -> Operation[None]:
    """POST /experimental/project/{projectID}/copy/refresh"""
    return Operation("POST", f"/experimental/project/{segment(project_id)}/copy/refresh", None)


def experimental_project_copy_generate_name(project_id: str, body: models.CopyNameInput) -> Operation[models.CopyName]:
    """POST /experimental/project/{projectID}/copy/generate-name"""
    return Operation("POST", f"/experimental/project/{segment(project_id)}/copy/generate-name", models.CopyName, body=body)


def sync_start(*, directory: str | None = None) -> Operation[bool]:
    """POST /sync/start

    True: there is nothing to synchronise with.
    """
    return Operation("POST", "/sync/start", bool, query={"directory": directory})


def sync_history_list(body: dict[str, int], *, directory: str | None = None) -> Operation[list[models.SyncEvent]]:
    """POST /sync/history"""
    return Operation("POST", "/sync/history", list[models.SyncEvent], query={"directory": directory}, body=body)


def sync_replay(body: models.SyncReplay) -> Operation[models.SyncSession]:
    """POST /sync/replay"""
    return Operation("POST", "/sync/replay", models.SyncSession, body=body)


def sync_steal(body: models.SyncSession) -> Operation[models.SyncSession]:
    """POST /sync/steal"""
    return Operation("POST", "/sync/steal", models.SyncSession, body=body)


def provider_oauth_authorize(provider_id: str, body: models.OAuthStart) -> Operation[models.ProviderAuthAuthorization]:
    """POST /provider/{providerID}/oauth/authorize"""
    return Operation("POST", f"/provider/{segment(provider_id)}/oauth/authorize", models.ProviderAuthAuthorization, body=body)


def provider_oauth_callback(provider_id: str, body: models.OAuthCallback) -> Operation[bool]:
    """POST /provider/{providerID}/oauth/callback"""
    return Operation("POST", f"/provider/{segment(provider_id)}/oauth/callback", bool, body=body)


def global_upgrade(body: models.UpgradeInput) -> Operation[models.UpgradeFailure]:
    """POST /global/upgrade"""
    return Operation("POST", "/global/upgrade", models.UpgradeFailure, body=body)


def vcs_get(*, directory: str | None = None) -> Operation[models.VcsInfo]:
    """GET /vcs

    An empty branch: HEAD is detached, or the directory lies outside git.
    """
    return Operation("GET", "/vcs", models.VcsInfo, query={"directory": directory})


def vcs_status(*, directory: str | None = None) -> Operation[list[models.VcsFileStatus]]:
    """GET /vcs/status

    The directory's files that differ from HEAD, untracked files included.
    """
    return Operation("GET", "/vcs/status", list[models.VcsFileStatus], query={"directory": directory})


def vcs_diff(
    *, mode: Literal["git", "branch"], context: int | None = None, directory: str | None = None
) -> Operation[list[models.VcsFileDiff]]:
    """GET /vcs/diff

    The changed files with patches: since HEAD (`git`), or since the branch left the default branch (`branch`).
    """
    return Operation(
        "GET", "/vcs/diff", list[models.VcsFileDiff], query={"mode": mode, "context": context, "directory": directory}
    )


def vcs_diff_raw(*, directory: str | None = None) -> Operation[bytes]:
    """GET /vcs/diff/raw

    The changes since HEAD as one patch, which `POST /vcs/apply` takes.
    """
    return Operation("GET", "/vcs/diff/raw", bytes, query={"directory": directory})


def vcs_apply(body: models.VcsPatch, *, directory: str | None = None) -> Operation[models.VcsApplied]:
    """POST /vcs/apply

    Apply a patch to the directory's files: all of it, or nothing. Refused while a session works in the checkout.
    """
    return Operation("POST", "/vcs/apply", models.VcsApplied, query={"directory": directory}, body=body)


def worktree_list(*, directory: str | None = None) -> Operation[list[str]]:
    """GET /experimental/worktree

    The project's checkouts but the main one, whether this server made them or not.
    """
    return Operation("GET", "/experimental/worktree", list[str], query={"directory": directory})


def worktree_create(body: models.WorktreeCreateInput, *, directory: str | None = None) -> Operation[models.CreatedWorktree]:
    """POST /experimental/worktree

    Make a worktree on a branch of its own. The event `worktree.ready` says that its files exist; then start commands run.
    """
    return Operation("POST", "/experimental/worktree", models.CreatedWorktree, query={"directory": directory}, body=body)


def worktree_remove(body: models.WorktreeDirectory, *, directory: str | None = None) -> Operation[bool]:
    """DELETE /experimental/worktree

    Remove a worktree that this server made, and its branch. Refused while a session works in it.
    """
    return Operation("DELETE", "/experimental/worktree", bool, query={"directory": directory}, body=body)


def worktree_reset(body: models.WorktreeDirectory, *, directory: str | None = None) -> Operation[bool]:
    """POST /experimental/worktree/reset

    Give a worktree that this server made the files of the default branch, no others. Refused while a session works in it.
    """
    return Operation("POST", "/experimental/worktree/reset", bool, query={"directory": directory}, body=body)


def find_text(*, pattern: str, directory: str | None = None) -> Operation[list[models.TextMatch]]:
    """GET /find

    Lines that match a regular expression of ripgrep: at most 10 of a file, 1,000 in all.
    """
    return Operation("GET", "/find", list[models.TextMatch], query={"pattern": pattern, "directory": directory})


def find_files(
    *,
    query: str,
    dirs: Literal["true", "false"] | None = None,
    type: Literal["file", "directory"] | None = None,
    limit: int | None = None,
    directory: str | None = None,
) -> Operation[list[str]]:
    """GET /find/file

    Files, and directories with a `/` at the end, whose paths have the letters of the query; the best match first. For a
    directory above those that you may work in: the folders that lead down to them.
    """
    return Operation(
        "GET", "/find/file", list[str], query={"query": query, "dirs": dirs, "type": type, "limit": limit, "directory": directory}
    )


def find_symbols(*, query: str, directory: str | None = None) -> Operation[list[models.Symbol]]:
    """GET /find/symbol

    The symbols that the started language servers find: at most 10 of each server.
    """
    return Operation("GET", "/find/symbol", list[models.Symbol], query={"query": query, "directory": directory})


def file_list(*, path: str, directory: str | None = None) -> Operation[list[models.FileNode]]:
    """GET /file

    Directories first. For a directory above those that you may work in: the folders that lead down to them.
    """
    return Operation("GET", "/file", list[models.FileNode], query={"path": path, "directory": directory})


def file_read(*, path: str, directory: str | None = None) -> Operation[models.ViewedFile]:
    """GET /file/content

    Empty when there is no such file.
    """
    return Operation("GET", "/file/content", models.ViewedFile, query={"path": path, "directory": directory})


def file_status(*, directory: str | None = None) -> Operation[list[models.ChangedFile]]:
    """GET /file/status"""
    return Operation("GET", "/file/status", list[models.ChangedFile], query={"directory": directory})


def find_messages(
    *,
    query: str,
    directory: str | None = None,
    session_id: str | None = None,
    role: Literal["user", "assistant"] | None = None,
    in_: Literal["text", "reasoning", "tool"] | None = None,
    since: float | None = None,
    until: float | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Operation[models.FoundParts]:
    """GET /find/message

    Newest first. Case and accents are ignored.
    """
    return Operation(
        "GET",
        "/find/message",
        models.FoundParts,
        query={
            "query": query,
            "directory": directory,
            "sessionID": session_id,
            "role": role,
            "in": in_,
            "since": since,
            "until": until,
            "limit": limit,
            "cursor": cursor,
        },
    )


def mcp_status(*, directory: str | None = None) -> Operation[dict[str, models.McpStatus]]:
    """GET /mcp

    Waits for the servers that are connecting.
    """
    return Operation("GET", "/mcp", dict[str, models.McpStatus], query={"directory": directory})


def mcp_add(body: models.NewServer, *, directory: str | None = None) -> Operation[dict[str, models.McpStatus]]:
    """POST /mcp

    Kept until the directory is closed. Replaces a server of that name.
    """
    return Operation("POST", "/mcp", dict[str, models.McpStatus], query={"directory": directory}, body=body)


def experimental_resource_list(*, directory: str | None = None) -> Operation[dict[str, models.McpResource]]:
    """GET /experimental/resource

    The resources of the connected servers, by `<server>:<name>` in the letters of a command's name.
    """
    return Operation("GET", "/experimental/resource", dict[str, models.McpResource], query={"directory": directory})


def mcp_connect(name: str, *, directory: str | None = None) -> Operation[bool]:
    """POST /mcp/{name}/connect

    True even if the connection fails: the status says why.
    """
    return Operation("POST", f"/mcp/{segment(name)}/connect", bool, query={"directory": directory})


def mcp_disconnect(name: str, *, directory: str | None = None) -> Operation[bool]:
    """POST /mcp/{name}/disconnect"""
    return Operation("POST", f"/mcp/{segment(name)}/disconnect", bool, query={"directory": directory})


def mcp_auth_start(name: str, *, directory: str | None = None) -> Operation[models.SignInPage]:
    """POST /mcp/{name}/auth"""
    return Operation("POST", f"/mcp/{segment(name)}/auth", models.SignInPage, query={"directory": directory})


def mcp_auth_remove(name: str, *, directory: str | None = None) -> Operation[models.Forgotten]:
    """DELETE /mcp/{name}/auth"""
    return Operation("DELETE", f"/mcp/{segment(name)}/auth", models.Forgotten, query={"directory": directory})


def mcp_auth_callback(name: str, body: models.SignInCode, *, directory: str | None = None) -> Operation[models.McpStatus]:
    """POST /mcp/{name}/auth/callback

    Finishes with the code that the sign-in page gave.
    """
    return Operation("POST", f"/mcp/{segment(name)}/auth/callback", models.McpStatus, query={"directory": directory}, body=body)


def mcp_auth_authenticate(name: str, *, directory: str | None = None) -> Operation[models.McpStatus]:
    """POST /mcp/{name}/auth/authenticate

    Tells the page to open by the event `mcp.browser.open.failed`, and answers when the sign-in has ended.
    """
    return Operation("POST", f"/mcp/{segment(name)}/auth/authenticate", models.McpStatus, query={"directory": directory})


def session_share(session_id: str, *, directory: str | None = None) -> Operation[models.Session]:
    """POST /session/{sessionID}/share

    Sharing twice gives the same link.
    """
    return Operation("POST", f"/session/{segment(session_id)}/share", models.Session, query={"directory": directory})


def session_unshare(session_id: str, *, directory: str | None = None) -> Operation[models.Session]:
    """DELETE /session/{sessionID}/share"""
    return Operation("DELETE", f"/session/{segment(session_id)}/share", models.Session, query={"directory": directory})


def share_session(share_id: str) -> Operation[models.SharedConversation]:
    """GET /s/{shareID}/session

    A shared session as its visitors see it, without a password.
    """
    return Operation("GET", f"/s/{segment(share_id)}/session", models.SharedConversation)


def session_export(
    session_id: str, *, children: bool | None = None, format: Literal["json", "markdown"] | None = None
) -> Operation[models.SessionDocument]:
    """GET /session/{sessionID}/export

    The session as one document, as it is at this moment, in the shape of `opencode export`.
    """
    return Operation(
        "GET", f"/session/{segment(session_id)}/export", models.SessionDocument, query={"children": children, "format": format}
    )


def session_import(
    body: models.SessionDocument, *, ids: Literal["keep", "new"] | None = None, directory: str | None = None
) -> Operation[models.ImportedSessions]:
    """POST /session/import

    Stores a document, of the export here or of `opencode export`, in the request's directory: all of it or nothing.
    """
    return Operation("POST", "/session/import", models.ImportedSessions, query={"ids": ids, "directory": directory}, body=body)


def webhook_list() -> Operation[list[models.Webhook]]:
    """GET /webhook

    A user's own webhooks; for admins all.
    """
    return Operation("GET", "/webhook", list[models.Webhook])


def webhook_create(body: models.WebhookInput) -> Operation[models.NewWebhook]:
    """POST /webhook

    Only this answer has the secret.
    """
    return Operation("POST", "/webhook", models.NewWebhook, body=body)


def webhook_get(webhook_id: str) -> Operation[models.Webhook]:
    """GET /webhook/{webhookID}"""
    return Operation("GET", f"/webhook/{segment(webhook_id)}", models.Webhook)


def webhook_update(webhook_id: str, body: models.WebhookPatch) -> Operation[models.Webhook]:
    """PATCH /webhook/{webhookID}"""
    return Operation("PATCH", f"/webhook/{segment(webhook_id)}", models.Webhook, body=body)


def webhook_delete(webhook_id: str) -> Operation[bool]:
    """DELETE /webhook/{webhookID}"""
    return Operation("DELETE", f"/webhook/{segment(webhook_id)}", bool)


def webhook_deliveries(webhook_id: str, *, limit: int | None = None) -> Operation[list[models.WebhookDelivery]]:
    """GET /webhook/{webhookID}/deliveries

    The last attempts, newest first.
    """
    return Operation("GET", f"/webhook/{segment(webhook_id)}/deliveries", list[models.WebhookDelivery], query={"limit": limit})


def webhook_test(webhook_id: str) -> Operation[models.WebhookDelivery]:
    """POST /webhook/{webhookID}/test

    Sends a `webhook.test` now, once, and says how it went.
    """
    return Operation("POST", f"/webhook/{segment(webhook_id)}/test", models.WebhookDelivery)


def pty_shells(*, directory: str | None = None) -> Operation[list[models.PtyShell]]:
    """GET /pty/shells

    The shells of this machine.
    """
    return Operation("GET", "/pty/shells", list[models.PtyShell], query={"directory": directory})


def pty_list(*, directory: str | None = None) -> Operation[list[models.Pty]]:
    """GET /pty

    The terminals of a directory whose programs run.
    """
    return Operation("GET", "/pty", list[models.Pty], query={"directory": directory})


def pty_create(body: models.PtyInput | None = None, *, directory: str | None = None) -> Operation[models.Pty]:
    """POST /pty

    Starts a program in a terminal of its own. When it exits, the terminal is gone, with all that was started in it.
    """
    return Operation("POST", "/pty", models.Pty, query={"directory": directory}, body=body)


def pty_get(pty_id: str, *, directory: str | None = None) -> Operation[models.Pty]:
    """GET /pty/{ptyID}"""
    return Operation("GET", f"/pty/{segment(pty_id)}", models.Pty, query={"directory": directory})


def pty_update(pty_id: str, body: models.PtyUpdate, *, directory: str | None = None) -> Operation[models.Pty]:
    """PUT /pty/{ptyID}

    Changes the terminal's title or size.
    """
    return Operation("PUT", f"/pty/{segment(pty_id)}", models.Pty, query={"directory": directory}, body=body)


def pty_remove(pty_id: str, *, directory: str | None = None) -> Operation[bool]:
    """DELETE /pty/{ptyID}

    Ends the terminal's program and all that was started in it.
    """
    return Operation("DELETE", f"/pty/{segment(pty_id)}", bool, query={"directory": directory})


def pty_connect_token(pty_id: str, *, directory: str | None = None) -> Operation[models.PtyTicket]:
    """POST /pty/{ptyID}/connect-token

    A login for one connection, `GET /pty/:ptyID/connect?ticket=…`: a browser's WebSocket can send no header.
    """
    return Operation("POST", f"/pty/{segment(pty_id)}/connect-token", models.PtyTicket, query={"directory": directory})


def pty_connect(
    pty_id: str, *, cursor: str | None = None, ticket: str | None = None, directory: str | None = None
) -> Operation[bool]:
    """GET /pty/{ptyID}/connect

    A WebSocket at a terminal: what the terminal prints is sent, what is received is typed.
    """
    return Operation(
        "GET", f"/pty/{segment(pty_id)}/connect", bool, query={"cursor": cursor, "ticket": ticket, "directory": directory}
    )


def tui_append_prompt(body: models.PromptText, *, directory: str | None = None) -> Operation[bool]:
    """POST /tui/append-prompt

    Append text to what stands in the prompt.
    """
    return Operation("POST", "/tui/append-prompt", bool, query={"directory": directory}, body=body)


def tui_submit_prompt(*, directory: str | None = None) -> Operation[bool]:
    """POST /tui/submit-prompt"""
    return Operation("POST", "/tui/submit-prompt", bool, query={"directory": directory})


def tui_clear_prompt(*, directory: str | None = None) -> Operation[bool]:
    """POST /tui/clear-prompt"""
    return Operation("POST", "/tui/clear-prompt", bool, query={"directory": directory})


def tui_open_help(*, directory: str | None = None) -> Operation[bool]:
    """POST /tui/open-help"""
    return Operation("POST", "/tui/open-help", bool, query={"directory": directory})


def tui_open_sessions(*, directory: str | None = None) -> Operation[bool]:
    """POST /tui/open-sessions"""
    return Operation("POST", "/tui/open-sessions", bool, query={"directory": directory})


def tui_open_themes(*, directory: str | None = None) -> Operation[bool]:
    """POST /tui/open-themes"""
    return Operation("POST", "/tui/open-themes", bool, query={"directory": directory})


def tui_open_models(*, directory: str | None = None) -> Operation[bool]:
    """POST /tui/open-models"""
    return Operation("POST", "/tui/open-models", bool, query={"directory": directory})


def tui_execute_command(body: models.CommandToExecute, *, directory: str | None = None) -> Operation[bool]:
    """POST /tui/execute-command"""
    return Operation("POST", "/tui/execute-command", bool, query={"directory": directory}, body=body)


def tui_show_toast(body: models.Toast, *, directory: str | None = None) -> Operation[bool]:
    """POST /tui/show-toast"""
    return Operation("POST", "/tui/show-toast", bool, query={"directory": directory}, body=body)


def tui_select_session(body: models.SelectedSession, *, directory: str | None = None) -> Operation[bool]:
    """POST /tui/select-session

    Show a session.
    """
    return Operation("POST", "/tui/select-session", bool, query={"directory": directory}, body=body)


def tui_publish(
    body: Annotated[
        models.PromptAppend | models.CommandExecute | models.ToastShow | models.SessionSelect, Field(discriminator="type")
    ],
    *,
    directory: str | None = None,
) -> Operation[bool]:
    """POST /tui/publish

    Announces any request of the other routes.
    """
    return Operation("POST", "/tui/publish", bool, query={"directory": directory}, body=body)


def tui_control_next(*, directory: str | None = None) -> Operation[models.ControlRequest]:
    """GET /tui/control/next

    Waits for the next of these requests: for programs that do not follow the events. Requests within a minute after the last
    fetch are kept for the next one.
    """
    return Operation("GET", "/tui/control/next", models.ControlRequest, query={"directory": directory})


def tui_control_response(body: Any) -> Operation[bool]:
    """POST /tui/control/response

    Accepted and not kept, as in OpenCode: the request was answered when it was announced.
    """
    return Operation("POST", "/tui/control/response", bool, body=body)
