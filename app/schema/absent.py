"""Bodies and answers of OpenCode features that this server does not have: they say "none" in OpenCode's shapes."""

from typing import Annotated, Any, Literal

from pydantic import Field

from app.schema.base import SessionID, Wire

WorkspaceID = Annotated[str, Field(pattern="^wrk")]


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
