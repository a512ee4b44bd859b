"""Features of OpenCode that this server does not have: clients get "none" or a refusal, in OpenCode's shapes."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import Field

from app.api.deps import AppServices, Here, SessionIdPath, Who
from app.api.errors import documented
from app.api.json_route import router
from app.api.roles import MANAGES, READS, WORK, WRITES, require_session
from app.project.location import Location
from app.schema.base import SessionID, Wire
from app.schema.errors import BadRequest, NotFound, ServiceError
from app.sessions.fork import make_slug

NO_WORKSPACES = "There are no workspaces here: name a directory"

experimental = router("/experimental", 400, 403, tags=["experimental"])
copies = router("/experimental/project/{projectID}/copy", 400, 403, tags=["experimental"])
sync = router("/sync", 400, 403, tags=["experimental", "sync"])
oauth = router("/provider/{providerID}/oauth", 400, 403, tags=["experimental", "provider"])
upgrades = router("/global", 400, 403, tags=["experimental", "global"])
routers = (experimental, copies, sync, oauth, upgrades)

ProjectId = Annotated[str, Path(alias="projectID")]
ProviderId = Annotated[str, Path(alias="providerID")]
WorkspaceID = Annotated[str, Field(pattern="^wrk")]
WorkspaceIdPath = Annotated[WorkspaceID, Path(alias="id")]
_UNKNOWN = documented(404)

# Bodies and answers.


class ExperimentalCapabilities(Wire):
    background_subagents: bool = False


class UpgradeInput(Wire):
    target: str


class UpgradeFailure(Wire):
    success: Literal[False] = False
    error: str


class ConsoleState(Wire):
    console_managed_providers: list[str] = []
    active_org_name: str | None = None
    switchable_org_count: int = 0


class ConsoleOrganisation(Wire):
    account_id: str
    account_email: str
    account_url: str
    org_id: str
    org_name: str
    active: bool


class ConsoleOrganisations(Wire):
    orgs: list[ConsoleOrganisation] = []


class ConsoleSwitch(Wire):
    account_id: str
    org_id: str


class NamedWorkspace(Wire):
    id: WorkspaceID
    type: str
    name: str
    branch: str | None = None
    directory: str | None = None
    extra: Any = None
    project_id: str
    time_used: float


class WorkspaceAdapter(Wire):
    type: str
    name: str
    description: str


class WorkspaceConnection(Wire):
    workspace_id: WorkspaceID
    status: Literal["connected", "connecting", "disconnected", "error"]


class WorkspaceInput(Wire):
    id: WorkspaceID | None = None
    type: str
    branch: str | None = None
    extra: Any = None


class WorkspaceWarp(Wire):
    id: WorkspaceID | None
    session_id: SessionID
    copy_changes: bool | None = None


class SessionDestination(Wire):
    directory: str


class SessionMove(Wire):
    session_id: SessionID
    destination: SessionDestination
    move_changes: bool | None = None


class ProjectCopyInput(Wire):
    strategy: str
    directory: str
    name: str | None = None


class ProjectCopyRemoval(Wire):
    directory: str
    force: bool


class ProjectCopy(Wire):
    directory: str


class CopyNameInput(Wire):
    context: str | None = None


class CopyName(Wire):
    name: str


class SyncEventInput(Wire):
    id: Annotated[str, Field(pattern="^evt_")]
    aggregate_id: Annotated[str, Field(alias="aggregateID")]
    seq: Annotated[int, Field(ge=0)]
    type: str
    data: dict[str, Any]


class SyncReplay(Wire):
    directory: str
    events: Annotated[list[SyncEventInput], Field(min_length=1)]


class SyncSession(Wire):
    session_id: SessionID


class SyncEvent(Wire):
    id: str
    aggregate_id: Annotated[str, Field(alias="aggregate_id")]
    seq: int
    type: str
    data: dict[str, Any]


class OAuthStart(Wire):
    method: float
    inputs: dict[str, str] | None = None


class OAuthCallback(Wire):
    method: float
    code: str | None = None


class ProviderAuthAuthorization(Wire):
    url: str
    method: Literal["auto", "code"]
    instructions: str


class FeatureAbsent(ServiceError):
    status = 400

    def __init__(self, name: str, message: str, **data: str) -> None:
        """`name`: of the error with which OpenCode's own feature fails."""
        super().__init__(message, **data)
        self.name = name


# A directory has none of these.

_NONE: tuple[tuple[str, str, str, Any, Any], ...] = (
    ("/capabilities", "capabilities.get", "capabilities", ExperimentalCapabilities, ExperimentalCapabilities()),
    ("/console", "console.get", "console", ConsoleState, ConsoleState()),
    ("/console/orgs", "console.listOrgs", "organisations", ConsoleOrganisations, ConsoleOrganisations()),
    ("/workspace", "workspace.list", "workspaces", list[NamedWorkspace], []),
    ("/workspace/adapter", "workspace.adapter.list", "workspace_adapters", list[WorkspaceAdapter], []),
    ("/workspace/status", "workspace.status", "workspace_status", list[WorkspaceConnection], []),
)
"""Path, operation, name, model of the answer, the answer."""


def _answering(none: Any) -> Callable[[Location], Awaitable[Any]]:
    async def answer(here: Here) -> Any:
        return none

    return answer


for path, operation, name, model, none in _NONE:
    experimental.get(path, operation_id=f"experimental.{operation}", name=name, response_model=model, dependencies=READS)(
        _answering(none)
    )


@sync.post("/start", dependencies=WRITES, operation_id="sync.start")
async def start_sync(here: Here) -> bool:
    """True: there is nothing to synchronise with."""
    return True


@sync.post("/history", operation_id="sync.history.list", dependencies=[*READS, WORK])
async def sync_history(here: Here, body: dict[str, int]) -> list[SyncEvent]:
    return []


@experimental.post("/workspace/sync-list", operation_id="experimental.workspace.syncList", status_code=204, dependencies=WRITES)
async def sync_workspaces(here: Here) -> None:
    return


# Refused.


@experimental.post("/console/switch", operation_id="experimental.console.switchOrg", dependencies=WRITES)
async def switch_organisation(body: ConsoleSwitch) -> bool:
    raise BadRequest("There are no accounts of OpenCode's console here", ["accountID"], body.account_id)


@experimental.post("/workspace", operation_id="experimental.workspace.create", dependencies=WRITES)
async def create_workspace(body: WorkspaceInput) -> NamedWorkspace:
    raise FeatureAbsent("WorkspaceCreateError", f"Unknown workspace adapter: {body.type}. {NO_WORKSPACES}, or make a worktree")


@experimental.delete("/workspace/{id}", operation_id="experimental.workspace.remove", responses=_UNKNOWN, dependencies=WRITES)
async def remove_workspace(workspace_id: WorkspaceIdPath) -> NamedWorkspace:
    raise NotFound(f"Workspace not found: {workspace_id}. {NO_WORKSPACES}")


@copies.post("", operation_id="v2.projectCopy.create", dependencies=WRITES)
async def copy_project(project_id: ProjectId, body: ProjectCopyInput) -> ProjectCopy:
    raise FeatureAbsent(
        "ProjectCopyError", f"Project copy strategy unavailable: {body.strategy}. Make a worktree: POST /experimental/worktree"
    )


@copies.delete("", operation_id="v2.projectCopy.remove", status_code=204, dependencies=WRITES)
async def remove_copy(project_id: ProjectId, body: ProjectCopyRemoval) -> None:
    raise FeatureAbsent("ProjectCopyError", f"Project copy directory unavailable: {body.directory}. No copies are made here")


@sync.post("/replay", operation_id="sync.replay", dependencies=WRITES)
async def replay_sync(body: SyncReplay) -> SyncSession:
    raise BadRequest("Events are not replayed here: use POST /session/import", ["events"])


@sync.post("/steal", operation_id="sync.steal", dependencies=WRITES)
async def steal_session(body: SyncSession) -> SyncSession:
    raise BadRequest(NO_WORKSPACES, ["sessionID"], body.session_id)


def _not_signed_in(provider_id: str) -> FeatureAbsent:
    message = f"{provider_id} is not signed in to with OAuth here: store an API key"
    return FeatureAbsent("ProviderAuthOauthMissing", message, providerID=provider_id)


@oauth.post("/authorize", operation_id="provider.oauth.authorize", dependencies=WRITES)
async def start_oauth(provider_id: ProviderId, body: OAuthStart) -> ProviderAuthAuthorization:
    raise _not_signed_in(provider_id)


@oauth.post("/callback", operation_id="provider.oauth.callback", dependencies=WRITES)
async def finish_oauth(provider_id: ProviderId, body: OAuthCallback) -> bool:
    raise _not_signed_in(provider_id)


# Answered.


@upgrades.post("/upgrade", dependencies=MANAGES)
async def upgrade(body: UpgradeInput) -> UpgradeFailure:
    return UpgradeFailure(error=f"This server does not update itself: install {body.target} and start it")


@experimental.post(
    "/session/{sessionID}/background", operation_id="experimental.session.background", responses=_UNKNOWN, dependencies=WRITES
)
async def background(app: AppServices, session_id: SessionIdPath) -> bool:
    """False: subagents are waited for, none is sent to the background."""
    await app.store.session_json(session_id)
    return False


_WARP, _MOVE = "experimental.workspace.warp", "experimental.controlPlane.moveSession"


@experimental.post("/workspace/warp", operation_id=_WARP, status_code=204, responses=_UNKNOWN, dependencies=WRITES)
async def warp(app: AppServices, who: Who, body: WorkspaceWarp) -> None:
    """Without an id it detaches the session from its workspace: no session here is in one."""
    await require_session(app, who, body.session_id)
    await app.store.session_json(body.session_id)
    if body.id is not None:
        raise NotFound(f"Workspace not found: {body.id}. {NO_WORKSPACES}")


@experimental.post("/control-plane/move-session", operation_id=_MOVE, status_code=204, responses=_UNKNOWN, dependencies=WRITES)
async def move_session(app: AppServices, who: Who, body: SessionMove) -> None:
    """Allowed only to the directory where the session is already."""
    await require_session(app, who, body.session_id)
    session = await app.store.session(body.session_id)
    if session.directory != body.destination.directory:
        raise FeatureAbsent("MoveSessionError", f"Sessions stay in their directory: create one in {body.destination.directory}")


@copies.post("/refresh", operation_id="v2.projectCopy.refresh", status_code=204, dependencies=WRITES)
async def refresh_copies(project_id: ProjectId) -> None:
    return


@copies.post("/generate-name", operation_id="experimental.projectCopy.generateName", dependencies=[*READS, WORK])
async def copy_name(project_id: ProjectId, body: CopyNameInput) -> CopyName:
    return CopyName(name=make_slug())
