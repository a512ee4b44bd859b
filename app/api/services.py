"""What the routes call. The wiring builds it once; a route finds it on its request."""

from dataclasses import dataclass

from app.api.draining import Draining
from app.bus.memory import MemoryBus
from app.intake.prompts import Prompts
from app.intake.session_actions import SessionActions
from app.permission.service import Permissions
from app.project.registry import Projects
from app.provider.auth_store import AuthStore
from app.provider.models.catalogue import Known
from app.question.service import Questions
from app.runs.deletion import Deletion
from app.runs.disposal import Disposal
from app.runs.runner import Runner
from app.session.fork import Forks
from app.session.replay import Replay
from app.session.service import SessionService
from app.session.share import Shares
from app.session.status import Statuses
from app.session.store import Store
from app.tool.toolbox import Toolbox
from app.workspace.branches import Branches
from app.workspace.instances import Instances


@dataclass(frozen=True)
class Services:
    store: Store
    sessions: SessionService
    deletion: Deletion
    forks: Forks
    shares: Shares
    statuses: Statuses
    prompts: Prompts
    requests: SessionActions
    runner: Runner
    instances: Instances
    disposal: Disposal
    projects: Projects
    branches: Branches
    permissions: Permissions
    questions: Questions
    bus: MemoryBus
    replay: Replay
    toolbox: Toolbox
    known: Known
    auth: AuthStore
    public_url: str | None
    max_part_bytes: int
    max_event_streams: int
    heartbeat_seconds: float
    draining: Draining
