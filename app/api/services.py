"""What the routes call."""

from functools import cached_property
from typing import TYPE_CHECKING, cast

from starlette.requests import HTTPConnection

from app.api.draining import Draining
from app.api.login import Login
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
from app.session.fork import Forks
from app.session.health import HealthCheck
from app.session.live import LiveSessions
from app.session.quota import ProjectQuota
from app.session.replay import Replay
from app.session.replicas import Replicas
from app.session.revert import Reverts
from app.session.service import SessionService
from app.session.share import Shares
from app.session.store import Store
from app.settings import Settings
from app.steering.service import Steering
from app.storage.directory_state import DirectoryStates
from app.storage.engine import Database
from app.telemetry.observer import Observer
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
from app.workspace.workspaces import Workspaces

if TYPE_CHECKING:
    from app.intake.admission import Admissions
    from app.telemetry.metrics import Metrics
    from app.timeline.service import Timeline
    from app.transfer.exports import Exports
    from app.transfer.imports import Imports


class Services:
    """What a running server (app/server.py) has for its routes, each of which names what it uses."""

    settings: Settings
    heartbeat_seconds: float
    login: Login
    draining: Draining
    health: HealthCheck
    replicas: Replicas
    rates: RateLimits
    observer: Observer
    metrics: "Metrics | None"
    """None unless the server counts."""

    users: Users
    user_keys: UserKeys
    event_cursors: EventCursors

    bus: MemoryBus
    replay: Replay
    database: Database
    store: Store
    quota: ProjectQuota

    workspaces: Workspaces
    instances: Instances
    projects: Projects
    branches: Branches
    states: DirectoryStates
    toolbox: Toolbox
    known: Catalogue
    auth: AuthStore
    global_config: GlobalConfig
    patching: Patching
    repository_init: RepositoryInit
    worktrees: Worktrees
    terminals: Terminals

    sessions: SessionService
    forks: Forks
    shares: Shares
    reverts: Reverts
    permissions: Permissions
    questions: Questions

    live: LiveSessions
    prompts: Prompts
    queue: PromptQueue
    actions: SessionActions
    deletion: Deletion
    disposal: Disposal
    retention: Retention

    steering: Steering
    webhooks: Webhooks

    # Made for the first who asks.

    @cached_property
    def timeline(self) -> "Timeline":
        from app.timeline.service import Timeline

        return Timeline(self.database, self.store, self.bus)

    @cached_property
    def admissions(self) -> "Admissions":
        from app.intake.admission import Admissions

        return Admissions(self.live, self.prompts, self.queue, self.timeline)

    @cached_property
    def exports(self) -> "Exports":
        from app.transfer.exports import Exports

        return Exports(self.store, self.settings.data_dir)

    @cached_property
    def imports(self) -> "Imports":
        from app.transfer.importer import Importer
        from app.transfer.imports import Imports

        return Imports(Importer(self.store, self.quota), self.settings.max_part_bytes)


def services_of(request: HTTPConnection) -> Services:
    return cast(Services, request.app.state.server)
