"""Features of OpenCode that this server does not have: clients get "none" or a refusal, in OpenCode's shapes."""

from typing import Annotated

from fastapi import Path
from fastapi.responses import Response

from app.api.access import require_session
from app.api.deps import TRUE, Directory, SessionIdPath, documented, json_bytes, location_of, wire
from app.api.json_route import ServerRequest, router
from app.schema.absent import (
    ConsoleOrganisations,
    ConsoleState,
    ConsoleSwitch,
    CopyName,
    CopyNameInput,
    ExperimentalCapabilities,
    NamedWorkspace,
    OAuthCallback,
    OAuthStart,
    ProjectCopy,
    ProjectCopyInput,
    ProjectCopyRemoval,
    ProviderAuthAuthorization,
    SessionMove,
    SyncEvent,
    SyncReplay,
    SyncSession,
    UpgradeFailure,
    UpgradeInput,
    WorkspaceAdapter,
    WorkspaceConnection,
    WorkspaceID,
    WorkspaceInput,
    WorkspaceWarp,
)
from app.schema.errors import BadRequest, NotFound, ServiceError
from app.session import slug

routes = router(tags=["experimental"], responses=documented(400, 403))

NONE = b"[]"
NO_WORKSPACES = "There are no workspaces here: name a directory"

ProjectId = Annotated[str, Path(alias="projectID")]
ProviderId = Annotated[str, Path(alias="providerID")]
WorkspaceIdPath = Annotated[WorkspaceID, Path(alias="id")]


class WorkspaceNotMade(ServiceError):
    status = 400
    name = "WorkspaceCreateError"


class SessionNotMoved(ServiceError):
    status = 400
    name = "MoveSessionError"


class ProjectNotCopied(ServiceError):
    status = 400
    name = "ProjectCopyError"


class OAuthMissing(ServiceError):
    status = 400
    name = "ProviderAuthOauthMissing"

    def __init__(self, provider_id: str) -> None:
        super().__init__(f"{provider_id} is not signed in to with OAuth here: store an API key", providerID=provider_id)


@routes.get("/experimental/capabilities", operation_id="experimental.capabilities.get", response_model=ExperimentalCapabilities)
async def capabilities(request: ServerRequest, where: Directory) -> Response:
    await location_of(request, where)
    return wire(ExperimentalCapabilities())


@routes.post(
    "/experimental/session/{sessionID}/background",
    operation_id="experimental.session.background",
    response_model=bool,
    responses=documented(404),
)
async def background(request: ServerRequest, session_id: SessionIdPath) -> Response:
    """False: subagents are waited for, none is sent to the background."""
    await request.services.sessions.store.session_json(session_id)
    return json_bytes(b"false")


@routes.post("/global/upgrade", operation_id="global.upgrade", response_model=UpgradeFailure, tags=["global"])
async def upgrade(body: UpgradeInput) -> Response:
    return wire(UpgradeFailure(error=f"This server does not update itself: install {body.target} and start it"))


@routes.get("/experimental/console", operation_id="experimental.console.get", response_model=ConsoleState)
async def console(request: ServerRequest, where: Directory) -> Response:
    await location_of(request, where)
    return wire(ConsoleState())


@routes.get("/experimental/console/orgs", operation_id="experimental.console.listOrgs", response_model=ConsoleOrganisations)
async def organisations(request: ServerRequest, where: Directory) -> Response:
    await location_of(request, where)
    return wire(ConsoleOrganisations())


@routes.post("/experimental/console/switch", operation_id="experimental.console.switchOrg", response_model=bool)
async def switch_organisation(body: ConsoleSwitch) -> Response:
    raise BadRequest("There are no accounts of OpenCode's console here", ["accountID"], body.account_id)


@routes.get("/experimental/workspace", operation_id="experimental.workspace.list", response_model=list[NamedWorkspace])
async def workspaces(request: ServerRequest, where: Directory) -> Response:
    await location_of(request, where)
    return json_bytes(NONE)


@routes.get(
    "/experimental/workspace/adapter", operation_id="experimental.workspace.adapter.list", response_model=list[WorkspaceAdapter]
)
async def workspace_adapters(request: ServerRequest, where: Directory) -> Response:
    await location_of(request, where)
    return json_bytes(NONE)


@routes.get(
    "/experimental/workspace/status", operation_id="experimental.workspace.status", response_model=list[WorkspaceConnection]
)
async def workspace_status(request: ServerRequest, where: Directory) -> Response:
    await location_of(request, where)
    return json_bytes(NONE)


@routes.post("/experimental/workspace", operation_id="experimental.workspace.create", response_model=NamedWorkspace)
async def create_workspace(body: WorkspaceInput) -> Response:
    raise WorkspaceNotMade(f"Unknown workspace adapter: {body.type}. {NO_WORKSPACES}, or make a worktree")


@routes.post("/experimental/workspace/sync-list", operation_id="experimental.workspace.syncList", status_code=204)
async def sync_workspaces(request: ServerRequest, where: Directory) -> Response:
    await location_of(request, where)
    return Response(status_code=204)


@routes.post(
    "/experimental/workspace/warp", operation_id="experimental.workspace.warp", status_code=204, responses=documented(404)
)
async def warp(request: ServerRequest, body: WorkspaceWarp) -> Response:
    """Without an id it detaches the session from its workspace: every session here is in none."""
    await require_session(request.services, request.principal, body.session_id)
    await request.services.sessions.store.session_json(body.session_id)
    if body.id is not None:
        raise NotFound(f"Workspace not found: {body.id}. {NO_WORKSPACES}")
    return Response(status_code=204)


@routes.delete(
    "/experimental/workspace/{id}",
    operation_id="experimental.workspace.remove",
    response_model=NamedWorkspace,
    responses=documented(404),
)
async def remove_workspace(workspace_id: WorkspaceIdPath) -> Response:
    raise NotFound(f"Workspace not found: {workspace_id}. {NO_WORKSPACES}")


@routes.post(
    "/experimental/control-plane/move-session",
    operation_id="experimental.controlPlane.moveSession",
    status_code=204,
    responses=documented(404),
)
async def move_session(request: ServerRequest, body: SessionMove) -> Response:
    """To where it is already only."""
    await require_session(request.services, request.principal, body.session_id)
    session = await request.services.sessions.store.session(body.session_id)
    if session.directory != body.destination.directory:
        raise SessionNotMoved(f"Sessions stay in their directory: create one in {body.destination.directory}")
    return Response(status_code=204)


@routes.post("/experimental/project/{projectID}/copy", operation_id="v2.projectCopy.create", response_model=ProjectCopy)
async def copy_project(project_id: ProjectId, body: ProjectCopyInput) -> Response:
    raise ProjectNotCopied(f"Project copy strategy unavailable: {body.strategy}. Make a worktree: POST /experimental/worktree")


@routes.delete("/experimental/project/{projectID}/copy", operation_id="v2.projectCopy.remove", status_code=204)
async def remove_copy(project_id: ProjectId, body: ProjectCopyRemoval) -> Response:
    raise ProjectNotCopied(f"Project copy directory unavailable: {body.directory}. No copies are made here")


@routes.post("/experimental/project/{projectID}/copy/refresh", operation_id="v2.projectCopy.refresh", status_code=204)
async def refresh_copies(project_id: ProjectId) -> Response:
    return Response(status_code=204)


@routes.post(
    "/experimental/project/{projectID}/copy/generate-name",
    operation_id="experimental.projectCopy.generateName",
    response_model=CopyName,
)
async def copy_name(project_id: ProjectId, body: CopyNameInput) -> Response:
    return wire(CopyName(name=slug.make()))


@routes.post("/sync/start", operation_id="sync.start", response_model=bool, tags=["sync"])
async def start_sync(request: ServerRequest, where: Directory) -> Response:
    """True, as all that there is to synchronise with is in step: nothing."""
    await location_of(request, where)
    return json_bytes(TRUE)


@routes.post("/sync/history", operation_id="sync.history.list", response_model=list[SyncEvent], tags=["sync"])
async def sync_history(request: ServerRequest, where: Directory, body: dict[str, int]) -> Response:
    await location_of(request, where)
    return json_bytes(NONE)


@routes.post("/sync/replay", operation_id="sync.replay", response_model=SyncSession, tags=["sync"])
async def replay_sync(body: SyncReplay) -> Response:
    raise BadRequest("Events are not replayed here: use POST /session/import", ["events"])


@routes.post("/sync/steal", operation_id="sync.steal", response_model=SyncSession, tags=["sync"])
async def steal_session(body: SyncSession) -> Response:
    raise BadRequest(NO_WORKSPACES, ["sessionID"], body.session_id)


@routes.post(
    "/provider/{providerID}/oauth/authorize",
    operation_id="provider.oauth.authorize",
    response_model=ProviderAuthAuthorization,
    tags=["provider"],
)
async def start_oauth(provider_id: ProviderId, body: OAuthStart) -> Response:
    raise OAuthMissing(provider_id)


@routes.post(
    "/provider/{providerID}/oauth/callback", operation_id="provider.oauth.callback", response_model=bool, tags=["provider"]
)
async def finish_oauth(provider_id: ProviderId, body: OAuthCallback) -> Response:
    raise OAuthMissing(provider_id)
