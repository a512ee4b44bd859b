"""What a running server tidies up from time to time: the journal, the search index, idle workspaces, outputs and snapshots."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from app.events.bus.memory import MemoryBus
from app.project.sandbox.sandbox import remove_unused
from app.record.engine import Database
from app.record.text_search import tidy_trigrams
from app.sessions.live import LiveSessions
from app.sessions.replay import Replay
from app.sessions.replicas import Replicas
from app.sessions.retention import PruneRule, Retention
from app.tools.truncation import OutputStore
from app.util import clock
from app.util.tasks import TaskSet, every
from app.workspace.instances import Instances
from app.workspace.user_changes import UserChanges
from app.workspace.workspaces import Branches

SECOND = 1.0
FIVE_SECONDS = 5.0
MINUTE = 60.0
QUARTER_HOUR = 900.0
HOUR = 3600.0


@dataclass(kw_only=True)
class Housekeeping:
    replay: Replay
    replicas: Replicas
    instances: Instances
    branches: Branches
    user_changes: UserChanges
    live: LiveSessions
    bus: MemoryBus
    outputs: OutputStore
    data_dir: Path
    idle_seconds: float
    database: Database
    retention: Retention
    retention_days: float | None
    tasks: TaskSet = field(default_factory=TaskSet)

    def start(self) -> None:
        for seconds, work, what in (
            (SECOND, self.branches.check_all, "looking for other branches"),
            (SECOND, self.user_changes.poll, "looking for users who were changed"),
            (MINUTE, self.replay.trim, "trimming the event journal"),
            (min(MINUTE, self.idle_seconds), self.evict, "closing idle directories"),
            (QUARTER_HOUR, self.replicas.forget_dead, "forgetting dead servers"),
            (HOUR, lambda: self.outputs.cleanup(clock.now_ms()), "removing old tool outputs"),
            (HOUR, self.remove_unused_homes, "removing unused homes of the sandbox"),
            (HOUR, self.collect_snapshots, "collecting old snapshots"),
            (HOUR, self.delete_old_sessions, "deleting old sessions"),
        ):
            self.tasks.start(every(seconds, work, what), f"housekeeping: {what}")
        if self.database.dialect == "postgresql":
            tidying = every(FIVE_SECONDS, partial(tidy_trigrams, self.database), "tidying the search index")
            self.tasks.start(tidying, "housekeeping: tidying the search index")

    async def stop(self) -> None:
        await self.tasks.cancel()

    async def evict(self) -> None:
        """Closes workspaces that nobody has used for long, in which no turn runs and to which no client listens."""
        busy = self.live.directories() | self.bus.directories()
        for directory in self.instances.workspaces.evict_idle(busy):
            await self.instances.close_one(directory)

    async def remove_unused_homes(self) -> None:
        await asyncio.to_thread(remove_unused, self.data_dir, clock.now_ms() / 1000)

    async def collect_snapshots(self) -> None:
        for snapshots in self.instances.snapshots():
            await snapshots.gc()

    async def delete_old_sessions(self) -> None:
        if self.retention_days is not None:
            await self.retention.prune(PruneRule.older_than(self.retention_days))
