"""The one place that picks concrete parts and puts them together."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.api.draining import Draining
from app.api.services import Services
from app.bus.base import Event
from app.bus.memory import MemoryBus
from app.config.flags import Flags
from app.config.well_known import Organisations
from app.context.instruction_pages import InstructionPages
from app.intake.attached_file import FileReader
from app.intake.command import Commands
from app.intake.prompts import Prompts
from app.intake.resolve import Resolver
from app.intake.session_actions import SessionActions
from app.intake.subagent import SubagentSessions
from app.intake.user_message import Intake, PromptLimits
from app.mcp.credentials import CredentialStore
from app.mcp.servers import McpEvent, McpSettings
from app.permission.service import Permissions
from app.plugin.host import PluginHost
from app.plugin.runner import HOOK_SECONDS
from app.project.registry import Projects
from app.provider.auth_store import AuthStore
from app.provider.base import Provider
from app.provider.models.catalogue import KnownCatalogue
from app.provider.registry import shared_scripted
from app.question.service import Questions
from app.runs.deletion import Deletion
from app.runs.disposal import Disposal
from app.runs.housekeeping import Housekeeping
from app.runs.recovery import Recovery, UnfinishedReverts
from app.runs.runner import MakeTurn, Runner
from app.session.fork import Forks
from app.session.gate import SessionGate
from app.session.lease import Leases
from app.session.quota import ProjectQuota
from app.session.replay import Replay
from app.session.revert import Reverts
from app.session.service import SessionService
from app.session.session_tasks import SessionTasks
from app.session.share import Shares
from app.session.status import Statuses
from app.session.store import Store
from app.session.summary import Summaries
from app.settings import Settings
from app.storage.engine import Database, require_writable
from app.storage.migrate import require_current, upgrade
from app.storage.statements import Statements
from app.storage.writer import Change, Writer
from app.tool.toolbox import Toolbox, ToolSettings
from app.tool.truncation import OutputStore
from app.turn.call_host import HostServices
from app.turn.titles import Titles
from app.turn.turn import Turn
from app.turn.turn_scope import TurnScope, TurnServices
from app.util import marks
from app.util.server_locks import ServerLocks
from app.workspace.branches import Branches
from app.workspace.instance import Instance
from app.workspace.instances import Instances
from app.workspace.workspace import WorkspaceSettings
from app.workspace.workspaces import Workspaces

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Storage:
    database: Database
    sql: Statements
    writer: Writer
    store: Store
    bus: MemoryBus


@dataclass(frozen=True)
class Choices:
    """What a test, or a program that runs the server within itself, may choose otherwise."""

    scripted: Callable[[], Provider] = shared_scripted
    heartbeat_seconds: float = 10.0
    plugin_hook_seconds: float = HOOK_SECONDS


class Server:
    """Everything a running server has. `start` before the first request, `stop` after the last."""

    def __init__(self, settings: Settings, directory: Path, choices: Choices = Choices()) -> None:
        self.settings = settings
        self._storage = _open_storage(settings)
        self._locks = ServerLocks(settings.data_dir / "servers") if self._storage.database.dialect == "sqlite" else None
        self._leases = Leases(self._storage.sql, self._storage.writer, self._locks)
        self._outputs = OutputStore(settings.data_dir / "tool-output")
        self._instruction_pages = InstructionPages()
        self._session_tasks = SessionTasks()
        services = self.services = self._build(Flags.from_env(os.environ), directory, choices)
        self._recovery = self._make_recovery()
        self._skip_grace_period = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._housekeeping = Housekeeping(
            services.replay,
            services.instances,
            services.branches,
            services.runner,
            services.bus,
            self._outputs,
            self.settings.idle_seconds,
        )

    async def start(self) -> None:
        """Put right what a crash left, then keep house."""
        if ended := await asyncio.to_thread(marks.end_abandoned):
            log.warning("ended %d processes of commands that a killed server left running", ended)
        self._hold_lock()
        await self._recovery.run()
        self._recovery.watch()
        if self._locks:
            self._locks.remove_unlocked()
        self._loop = asyncio.get_running_loop()
        self._housekeeping.start()

    def _hold_lock(self) -> None:
        try:
            if self._locks:
                self._locks.hold(self._leases.owner)
        except OSError as error:
            log.warning("%s: files there cannot be locked, so what a killed server leaves is recovered some seconds later", error)

    async def stop(self) -> None:
        """Turns are aborted and settled, everything is written, then listeners and the database are let go."""
        await self._housekeeping.stop()
        await self._recovery.close()
        await self.services.runner.close()
        await self._session_tasks.close()
        await self._storage.store.drain()
        await self._leases.close()
        await self.services.permissions.pending.close()
        await self.services.questions.pending.close()
        await self.services.instances.close()
        await self._instruction_pages.close()
        self._storage.bus.close()
        self._storage.database.close()
        if self._locks:
            self._locks.release()

    def refuse_work(self) -> None:
        """From now on requests that would start or change work are answered with 503. Safe to call from a signal handler."""
        self.services.draining.begin()

    async def wind_down(self) -> None:
        """Before `stop`, while clients are connected: running turns have the grace period to finish and are aborted then, which
        clients are told. Then event streams end, which have no end of their own. There is no `server.instance.disposed`:
        OpenCode's terminal client would load all anew, from a server that answers no more, and end itself."""
        self.refuse_work()
        await self._recovery.close()
        await self._within_grace_period(self._work_done())
        await self.services.runner.close()
        self._storage.bus.close()

    async def _work_done(self) -> None:
        """Returns when all that was accepted is answered, and what turns leave to be done is stored. Requests come first, because
        they start turns."""
        await self.services.draining.requests_taken()
        await self.services.runner.all_over()
        await self._session_tasks.finished()

    async def _within_grace_period(self, work: Coroutine[Any, Any, None]) -> None:
        waits = [asyncio.create_task(wait) for wait in (work, self._skip_grace_period.wait())]
        await asyncio.wait(waits, timeout=self.settings.shutdown_seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def skip_grace_period(self) -> None:
        """Running turns are aborted now. Safe to call from a signal handler."""
        self._loop.call_soon_threadsafe(self._skip_grace_period.set)

    def _make_recovery(self) -> Recovery:
        services, store = self.services, self._storage.store
        pending = (services.permissions.pending, services.questions.pending)
        reverts = UnfinishedReverts(store, services.instances, services.requests)
        return Recovery(store, self._leases, pending, services.instances, services.runner, reverts)

    def _build(self, flags: Flags, directory: Path, choices: Choices) -> Services:
        storage = self._storage
        database, sql, writer, store = storage.database, storage.sql, storage.writer, storage.store
        projects, known, auth = Projects(database, sql, writer), KnownCatalogue(), AuthStore(self.settings.data_dir)
        toolbox = _toolbox(self.settings, flags, known)
        workspaces = _workspaces(self.settings, flags, directory, projects, auth)
        instances = self._instances(workspaces, known, auth, toolbox, choices)
        statuses, summaries, gate = Statuses(store), Summaries(store), SessionGate()
        permissions, questions = Permissions(database, sql, writer), Questions(database, sql, writer)
        subagents = SubagentSessions(store)
        turn_services = TurnServices(
            store=store,
            statuses=statuses,
            summaries=summaries,
            tasks=self._session_tasks,
            host=HostServices(store, permissions, questions, subagents),
            toolbox=toolbox,
            outputs=self._outputs,
            instruction_pages=self._instruction_pages,
        )
        make_turn = _turn_maker(turn_services, Titles(store, summaries, self._session_tasks))
        runner = Runner(store, statuses, self._leases, gate, make_turn, self.settings.max_running_sessions)
        files = FileReader(store, toolbox.read, toolbox.list, toolbox.times, self._outputs)
        reverts = Reverts(store)
        quota = ProjectQuota(store, self.settings.max_project_bytes)
        limits = PromptLimits(self.settings.max_part_bytes, self.settings.max_waiting_prompts)
        intake = Intake(store, Resolver(files), reverts, limits, quota)
        prompts = Prompts(store, intake, runner, gate)
        sessions = SessionService(store, gate)
        commands = Commands(toolbox.shell, toolbox.environment)
        subagents.prompts, subagents.runner = prompts, runner
        return Services(
            store=store,
            sessions=sessions,
            deletion=Deletion(store, sessions, runner, gate, self._session_tasks),
            forks=Forks(store, quota, gate),
            shares=Shares(store),
            statuses=statuses,
            prompts=prompts,
            requests=SessionActions(turn_services, prompts, intake, runner, gate, reverts, commands, projects),
            runner=runner,
            instances=instances,
            disposal=Disposal(instances, runner, writer, storage.bus),
            projects=projects,
            branches=Branches(workspaces, writer, storage.bus),
            permissions=permissions,
            questions=questions,
            bus=storage.bus,
            replay=Replay(database, store, self.settings.max_journal_bytes),
            toolbox=toolbox,
            known=known,
            auth=auth,
            public_url=self.settings.public_url,
            max_part_bytes=self.settings.max_part_bytes,
            max_event_streams=self.settings.max_event_streams,
            heartbeat_seconds=choices.heartbeat_seconds,
            draining=Draining(),
        )

    def _instances(
        self, workspaces: Workspaces, known: KnownCatalogue, auth: AuthStore, toolbox: Toolbox, choices: Choices
    ) -> Instances:
        settings, storage = self.settings, self._storage
        mcp = McpSettings(toolbox.environment, CredentialStore(settings.data_dir), _announcer(storage.writer))
        plugins = PluginHost(storage.bus, project_code=settings.project_plugins, hook_seconds=choices.plugin_hook_seconds)
        return Instances(workspaces, known, auth, settings.data_dir, mcp, plugins, scripted=choices.scripted, hide=toolbox.hide)


def _open_storage(settings: Settings) -> _Storage:
    """The embedded database is migrated here; a shared one is by `opensession migrate`."""
    require_writable(settings.data_dir)
    database = Database(settings.resolved_database_url)
    if settings.database_url is None:
        upgrade(database.engine)
    else:
        require_current(database.engine)
    sql, bus = Statements(database.dialect), MemoryBus()
    writer = Writer(database, sql, bus)
    return _Storage(database, sql, writer, Store(database, sql, writer), bus)


def _toolbox(settings: Settings, flags: Flags, known: KnownCatalogue) -> Toolbox:
    """Commands see no key of a known provider."""
    key_names = frozenset(name for provider in known.providers.values() for name in provider.env)
    return Toolbox(ToolSettings(flags, key_names, settings.allow_private_addresses))


def _workspaces(settings: Settings, flags: Flags, directory: Path, projects: Projects, auth: AuthStore) -> Workspaces:
    organisations = Organisations(auth.all, os.environ)
    of_each = WorkspaceSettings(settings.data_dir, flags, organisations, settings.max_snapshot_bytes)
    return Workspaces(of_each, directory, settings.root_dirs, projects, settings.idle_seconds)


def _announcer(writer: Writer) -> Callable[[str, McpEvent], None]:
    """Tells the clients of a directory."""

    def announce(directory: str, event: McpEvent) -> None:
        writer.post(Change(events=[Event(event.wire_json(), directory)]))

    return announce


def _turn_maker(services: TurnServices, titles: Titles) -> MakeTurn:
    def make(session_id: str, instance: Instance, joined: Callable[[], bool]) -> Turn:
        return Turn(TurnScope(services, instance, session_id), titles, joined)

    return make
