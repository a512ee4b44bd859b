"""What the routes call. `app.server` builds it once; a route finds it on its request."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from starlette.requests import HTTPConnection

from app.api.draining import Draining
from app.api.rate_limits import RateLimits
from app.bus.memory import MemoryBus
from app.intake.prompt_queue import PromptQueue
from app.intake.prompts import Prompts
from app.intake.session_actions import SessionActions
from app.permission.service import Permissions
from app.project.registry import Projects
from app.provider.auth_store import AuthStore
from app.provider.models.catalogue import Catalogue
from app.pty.terminals import Terminals
from app.question.service import Questions
from app.runs.deletion import Deletion
from app.runs.disposal import Disposal
from app.runs.retention import Retention
from app.runs.runner import Runner
from app.session.all_sessions import AllSessions
from app.session.fork import Forks
from app.session.health import HealthCheck
from app.session.replay import Replay
from app.session.replicas import Replicas
from app.session.revert import Reverts
from app.session.search import MessageSearch
from app.session.service import SessionService
from app.session.share import Shares
from app.session.status import Statuses
from app.session.store import Store
from app.session.usage import UsageLedger
from app.settings import Settings
from app.steering.service import Steering
from app.storage.directory_state import DirectoryStates
from app.telemetry.observer import NOBODY, Observer
from app.tool.toolbox import Toolbox
from app.users.event_cursors import EventCursors
from app.users.keys import UserKeys
from app.users.users import Users
from app.vcs.patching import Patching
from app.vcs.repository_init import RepositoryInit
from app.vcs.worktrees import Worktrees
from app.webhook.service import Webhooks
from app.workspace.branches import Branches
from app.workspace.global_config import GlobalConfig
from app.workspace.instances import Instances

if TYPE_CHECKING:
    from app.intake.admission import Admissions
    from app.telemetry.metrics import Metrics
    from app.timeline.service import Timeline
    from app.transfer.exports import Exports
    from app.transfer.imports import Imports


@dataclass(frozen=True)
class SessionServices:
    """Stored sessions. Nothing here runs a turn."""

    store: Store
    service: SessionService
    all_sessions: AllSessions
    forks: Forks
    shares: Shares
    statuses: Statuses
    reverts: Reverts
    usage: UsageLedger
    search: MessageSearch


@dataclass(frozen=True)
class PendingServices:
    """Requests that wait for the user's answer."""

    permissions: Permissions
    questions: Questions


@dataclass(frozen=True)
class RunServices:
    """Starts, awaits and ends turns."""

    runner: Runner
    prompts: Prompts
    queue: PromptQueue
    actions: SessionActions
    deletion: Deletion
    disposal: Disposal
    retention: Retention


@dataclass(frozen=True)
class DirectoryServices:
    """The directories in use, with their models, keys and tools."""

    instances: Instances
    projects: Projects
    branches: Branches
    toolbox: Toolbox
    known: Catalogue
    auth: AuthStore
    global_config: GlobalConfig
    states: DirectoryStates


@dataclass(frozen=True)
class VcsServices:
    patching: Patching
    repository_init: RepositoryInit
    worktrees: Worktrees


@dataclass(frozen=True)
class EventServices:
    bus: MemoryBus
    replay: Replay
    heartbeat_seconds: float


@dataclass(frozen=True)
class UserServices:
    users: Users
    cursors: EventCursors
    keys: UserKeys
    rates: RateLimits


@dataclass(frozen=True)
class SecondApiServices:
    """What the second API has beside the first."""

    timeline: "Timeline"
    admissions: "Admissions"


@dataclass(frozen=True)
class TransferServices:
    exports: "Exports"
    imports: "Imports"


@dataclass(frozen=True)
class Services:
    settings: Settings
    directories: DirectoryServices
    sessions: SessionServices
    pending: PendingServices
    runs: RunServices
    events: EventServices
    users: UserServices
    second_api: Callable[[], SecondApiServices]
    """Made when it is called for the first time, as `transfer` is."""
    transfer: Callable[[], TransferServices]
    vcs: VcsServices
    steering: Steering
    draining: Draining
    replicas: Replicas
    health: HealthCheck
    webhooks: Webhooks
    terminals: Terminals
    observer: Observer = NOBODY
    metrics: "Metrics | None" = None
    """None unless the server counts."""


def services_of(request: HTTPConnection) -> Services:
    return cast(Services, request.app.state.services)
