"""What a running server tidies up from time to time: the journal, the search index, idle workspaces, outputs and snapshots."""

import asyncio
from functools import partial
from pathlib import Path

from app.events.bus.memory import MemoryBus
from app.project.sandbox.sandbox import remove_unused
from app.record.engine import Database
from app.record.text_search import tidy_trigrams
from app.sessions.live import LiveSessions
from app.sessions.replay import Replay
from app.sessions.replicas import Replicas
from app.tools.truncation import OutputStore
from app.turn.runs.retention import PruneRule, Retention
from app.util import clock
from app.util.tasks import TaskSet, every
from app.workspace.instances import Instances
from app.workspace.workspaces import Branches

SECOND = 1.0
FIVE_SECONDS = 5.0
MINUTE = 60.0
QUARTER_HOUR = 900.0
HOUR = 3600.0


class Housekeeping:
    def __init__(
        self,
        replay: Replay,
        replicas: Replicas,
        instances: Instances,
        branches: Branches,
        live: LiveSessions,
        bus: MemoryBus,
        outputs: OutputStore,
        data_dir: Path,
        idle_seconds: float,
        database: Database,
        retention: Retention,
        retention_days: float | None,
    ) -> None:
        self._database = database
        self._branches = branches
        self._replay = replay
        self._replicas = replicas
        self._instances = instances
        self._live = live
        self._bus = bus
        self._outputs = outputs
        self._data_dir = data_dir
        self._idle_seconds = idle_seconds
        self._retention = retention
        self._retention_days = retention_days
        self._tasks = TaskSet()

    def start(self) -> None:
        for seconds, work, what in (
            (SECOND, self._branches.check_all, "looking for other branches"),
            (FIVE_SECONDS, partial(tidy_trigrams, self._database), "tidying the search index"),
            (MINUTE, self._replay.trim, "trimming the event journal"),
            (min(MINUTE, self._idle_seconds), self.evict, "closing idle directories"),
            (QUARTER_HOUR, self._replicas.forget_dead, "forgetting dead servers"),
            (HOUR, self.remove_old_outputs, "removing old tool outputs"),
            (HOUR, self.remove_unused_homes, "removing unused homes of the sandbox"),
            (HOUR, self.collect_snapshots, "collecting old snapshots"),
            (HOUR, self.delete_old_sessions, "deleting old sessions"),
        ):
            self._tasks.start(every(seconds, work, what), f"housekeeping: {what}")

    async def stop(self) -> None:
        await self._tasks.cancel()

    async def evict(self) -> None:
        """Closes workspaces that nobody has used for long, in which no turn runs and to which no client listens."""
        busy = self._live.directories() | self._bus.directories()
        for directory in self._instances.workspaces.evict_idle(busy):
            await self._instances.close_one(directory)

    async def remove_old_outputs(self) -> None:
        await self._outputs.cleanup(clock.now_ms())

    async def remove_unused_homes(self) -> None:
        await asyncio.to_thread(remove_unused, self._data_dir, clock.now_ms() / 1000)

    async def collect_snapshots(self) -> None:
        for snapshots in self._instances.snapshots():
            await snapshots.gc()

    async def delete_old_sessions(self) -> None:
        if self._retention_days is not None:
            await self._retention.prune(PruneRule.older_than(self._retention_days))
