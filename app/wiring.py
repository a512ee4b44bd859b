"""The one place that picks concrete parts and puts them together."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from app.api.draining import Draining
from app.api.event_tokens import EventTokens, MemoryEventTokens, StoredEventTokens
from app.api.rate_limits import RateLimits
from app.api.services import (
    DirectoryServices,
    EventServices,
    PendingServices,
    RunServices,
    SecondApiServices,
    Services,
    SessionServices,
    TransferServices,
    UserServices,
    VcsServices,
)
from app.backup.placing import finish_restore
from app.bus.base import EventBus
from app.bus.memory import MemoryBus
from app.bus.shared import SharedBus
from app.config.flags import Flags
from app.config.well_known import Organisations
from app.context.instruction_pages import InstructionPages
from app.intake.attached_file import FileReader
from app.intake.command import Commands
from app.intake.prompt_queue import PromptQueue
from app.intake.prompts import Prompts
from app.intake.resolve import Resolver
from app.intake.session_actions import SessionActions
from app.intake.user_message import Intake, PromptLimits
from app.mcp.credentials import CredentialStore
from app.mcp.servers import McpSettings
from app.permission.service import Permissions
from app.plugin.host import ApiAccess, PluginHost
from app.plugin.runner import HOOK_SECONDS
from app.project.registry import Projects
from app.provider.auth_store import AuthStore
from app.provider.base import Provider
from app.provider.models.catalogue import KnownCatalogue
from app.provider.registry import shared_scripted
from app.pty.programs import TerminalPrograms
from app.pty.terminals import Terminals
from app.question.service import Questions
from app.runs.busy_directories import BusyDirectories
from app.runs.deletion import Deletion
from app.runs.directory_follower import DirectoryFollower
from app.runs.disposal import Disposal
from app.runs.housekeeping import Housekeeping
from app.runs.recovery import Recovery, UnfinishedReverts
from app.runs.retention import REST, Retention
from app.runs.runner import Runner
from app.sandbox.sandbox import Sandbox, open_sandbox
from app.session.all_sessions import AllSessions
from app.session.fork import Forks
from app.session.gate import SessionGate
from app.session.health import HealthCheck
from app.session.lease import Leases
from app.session.quota import ProjectQuota
from app.session.replay import Replay
from app.session.replicas import Replicas
from app.session.revert import Reverts
from app.session.search import MessageSearch
from app.session.search_index import SearchIndex
from app.session.sequencer import Sequencer
from app.session.service import SessionService
from app.session.session_tasks import SessionTasks
from app.session.share import Shares
from app.session.status import Statuses
from app.session.store import Store
from app.session.summary import Summaries
from app.session.usage import UsageLedger
from app.settings import Settings
from app.steering.control import ControlQueues
from app.steering.service import Steering
from app.storage.directory_state import DirectoryStates, LocalDirectoryStates, SharedDirectoryStates
from app.storage.engine import Database, require_writable
from app.storage.journal import Journal
from app.storage.migrate import require_current, upgrade
from app.storage.repositories import session_rows
from app.storage.statements import Statements
from app.storage.writer import Writer
from app.telemetry.observer import NOBODY, Observer
from app.telemetry.telemetry import Telemetry, open_telemetry
from app.tool.toolbox import Toolbox, ToolSettings
from app.tool.truncation import OutputStore
from app.tool.web.pinned import PinnedRequests
from app.turn.call_host import HostServices
from app.turn.titles import Titles
from app.turn.turn_scope import TurnServices
from app.users.accounts import ModelAccounts
from app.users.budgets import Budgets, DayLimits
from app.users.event_cursors import EventCursors
from app.users.keys import UserKeys
from app.users.server_secret import ServerSecret
from app.users.users import Users
from app.util import marks
from app.util.server_locks import ServerLocks
from app.util.shared_threads import THREADS
from app.util.volume import volume_id
from app.vcs.patching import Patching
from app.vcs.repository_init import RepositoryInit
from app.vcs.start_command import StartCommands
from app.vcs.worktrees import Worktrees, WorktreeServices
from app.webhook.dispatcher import WebhookDispatcher
from app.webhook.journal_pages import JournalPages
from app.webhook.owners import WebhookOwners
from app.webhook.service import Webhooks
from app.webhook.worker import WorkerServices
from app.workspace.branches import Branches
from app.workspace.global_config import GlobalConfig
from app.workspace.instances import Instances, ModelSources
from app.workspace.workspace import WorkspaceSettings
from app.workspace.workspaces import Workspaces

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choices:
    """What a test, or a program that runs the server within itself, may choose otherwise."""

    scripted: Callable[[], Provider] = shared_scripted
    heartbeat_seconds: float = 10.0
    plugin_hook_seconds: float = HOOK_SECONDS
    recovers_all: bool = True
    """Otherwise, as for a server that lives for one command, only what prompts that it is sent find interrupted."""


@dataclass(frozen=True)
class _Storage:
    database: Database
    sql: Statements
    writer: Writer
    store: Store
    bus: EventBus
    locks: ServerLocks | None
    leases: Leases
    replicas: Replicas
    users: UserServices
    accounts: ModelAccounts
    states: DirectoryStates

    @property
    def is_shared(self) -> bool:
        """Whether other servers may use the database too."""
        return self.database.dialect != "sqlite"


@dataclass(frozen=True)
class _Core:
    """What the services are made of."""

    settings: Settings
    choices: Choices
    flags: Flags
    storage: _Storage
    sandbox: Sandbox
    gate: SessionGate
    quota: ProjectQuota
    tasks: SessionTasks
    outputs: OutputStore
    instruction_pages: InstructionPages
    telemetry: Telemetry


class Server:
    """Everything a running server has. `start` before the first request, `stop` after the last."""

    def __init__(
        self,
        settings: Settings,
        home: Path,
        choices: Choices = Choices(),
        api_access: ApiAccess = ApiAccess(),
        address: str = "",
    ) -> None:
        """`api_access` is for plugins; `address` is how other servers list this one."""
        self.settings = settings
        self._core = _core(settings, choices, address)
        self.services = _services(self._core, home, api_access)
        self.event_tokens = _event_tokens(self._core.storage)
        self.sandbox = self._core.sandbox
        self._recovery = _recovery(self._core, self.services)
        self.search_index = SearchIndex(self._core.storage.database, self._core.storage.sql)
        self._housekeeping = _housekeeping(self._core, self.services, self.search_index)
        self.telemetry = self._core.telemetry
        _read_gauges(self.services)
        directories, states = self.services.directories, self._core.storage.states
        terminals = self.services.terminals
        self._follower = DirectoryFollower(states, directories.instances, self._core.storage.bus, terminals)
        self._webhooks = _webhook_dispatcher(self._core.storage, self.services.webhooks)
        self._skip_grace_period = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Put right what a crash left, then keep house."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(THREADS)
        if ended := await asyncio.to_thread(marks.end_abandoned):
            log.warning("ended %d processes of commands that a killed server left running", ended)
        self._hold_lock()
        await self._look_for_users()
        await self.services.directories.instances.workspaces.start()
        await self._core.storage.bus.start()
        await self._core.storage.replicas.start()
        await self._follower.start()
        if self._core.choices.recovers_all:
            await self._recovery.run()
        self._recovery.watch()
        await self._resume_queues()
        self.services.runs.runner.watch()
        if self._core.storage.locks:
            self._core.storage.locks.remove_unlocked()
        self._housekeeping.start()
        self.telemetry.start()
        self._webhooks.start()

    async def _resume_queues(self) -> None:
        if not self._core.choices.recovers_all:
            return
        if self._core.storage.is_shared:
            self.services.runs.queue.watch()
        else:
            await self.services.runs.queue.resume()

    async def _look_for_users(self) -> None:
        """Reads their roots, which sessions that are recovered may work in."""
        storage = self._core.storage
        storage.writer.has_owners = bool(await storage.users.users.all()) or await storage.database.read(
            session_rows.has_owned_sessions
        )

    def _hold_lock(self) -> None:
        try:
            if self._core.storage.locks:
                self._core.storage.locks.hold(self._core.storage.leases.owner)
        except OSError as error:
            log.warning("%s: files there cannot be locked, so what a killed server leaves is recovered some seconds later", error)

    async def stop(self) -> None:
        """Turns are aborted and their records finished, everything is written, then listeners and the database are closed. A
        part that cannot be stopped leaves no other one open: what it raised is raised in the end. So is what was started is
        stopped where `start` failed."""
        storage, services = self._core.storage, self.services
        in_order = (
            self._housekeeping.stop,
            services.terminals.close,
            self._follower.stop,
            self._recovery.close,
            services.runs.queue.close,
            services.runs.runner.close,
            self._core.tasks.close,
            storage.store.drain,
            self._webhooks.stop,
            storage.leases.close,
            storage.replicas.unregister,
            services.pending.permissions.pending.close,
            services.pending.questions.pending.close,
            services.directories.instances.close,
            self._core.instruction_pages.close,
            storage.bus.stop,
        )
        async with AsyncExitStack() as stack:  # what is pushed last is called first
            if storage.locks:
                stack.callback(storage.locks.release)
            stack.push_async_callback(self.telemetry.stop)
            stack.callback(storage.database.close)
            for close in reversed(in_order):
                stack.push_async_callback(close)

    def refuse_work(self) -> None:
        """From now on requests that would start or change work are answered with 503. Safe to call from a signal handler."""
        self.services.draining.begin()

    async def wind_down(self) -> None:
        """Before `stop`, while clients are connected: running turns have the grace period to finish, then are handed over or
        aborted. Then event streams end, which have no end of their own. There is no `server.instance.disposed`:
        OpenCode's terminal client would load all anew, from a server that answers no more, and end itself."""
        self.refuse_work()
        await self._recovery.close()
        await self.services.runs.queue.close()
        await self._within_grace_period(self._work_done())
        if self._core.storage.is_shared and self.settings.interrupted == "continue":
            await self.services.runs.runner.hand_over()
        await self.services.runs.runner.close()
        await self.services.terminals.close()
        self._core.storage.bus.close()

    async def _work_done(self) -> None:
        """Returns when all that was accepted is answered, and what turns leave to be done is stored. Requests come first, because
        they start turns."""
        await self.services.draining.requests_taken()
        await self.services.runs.runner.all_ended()
        await self._core.tasks.finished()

    async def _within_grace_period(self, work: Coroutine[Any, Any, None]) -> None:
        waits = [asyncio.create_task(wait) for wait in (work, self._skip_grace_period.wait())]
        await asyncio.wait(waits, timeout=self.settings.shutdown_seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def skip_grace_period(self) -> None:
        """Running turns are aborted now. Safe to call from a signal handler, also before `start`."""
        if self._loop is None:
            self._skip_grace_period.set()
        else:
            self._loop.call_soon_threadsafe(self._skip_grace_period.set)


def _core(settings: Settings, choices: Choices, address: str) -> _Core:
    telemetry = open_telemetry(settings.metrics, os.environ)
    sandbox, storage = open_sandbox(settings), _open_storage(settings, address, telemetry.observer)
    return _Core(
        settings=settings,
        choices=choices,
        flags=Flags.from_env(os.environ),
        storage=storage,
        sandbox=sandbox,
        gate=SessionGate(),
        quota=ProjectQuota(storage.store, settings.max_project_bytes),
        tasks=SessionTasks(),
        outputs=OutputStore(settings.data_dir / "tool-output"),
        instruction_pages=InstructionPages(),
        telemetry=telemetry,
    )


def _open_storage(settings: Settings, address: str, observer: Observer, bus: EventBus | None = None) -> _Storage:
    """The embedded database is migrated here; a shared one is by `opensession migrate`."""
    require_writable(settings.data_dir)
    finish_restore(settings.data_dir)
    database = Database(settings.resolved_database_url)
    if settings.database_url is None:
        upgrade(database.engine)
    else:
        require_current(database.engine)
    sql, bus = Statements(database.dialect), bus or _bus(settings, database)
    sequencer = Sequencer(bus)
    writer = Writer(database, sql, sequencer, observer=observer)
    locks = ServerLocks(settings.data_dir / "servers") if database.dialect == "sqlite" else None
    store, leases = Store(database, sql, writer, sequencer), Leases(database, sql, writer, locks)
    volume = None if locks else volume_id(settings.data_dir)
    replicas = Replicas(database, sql, writer, leases, locks, address, volume)
    if isinstance(bus, SharedBus):
        replicas.cursor, bus.changed = bus.cursor, store.note_change
    users, accounts = _users(settings, database, sql)
    states = _directory_states(database, sql, writer, leases)
    return _Storage(database, sql, writer, store, bus, locks, leases, replicas, users, accounts, states)


def _directory_states(database: Database, sql: Statements, writer: Writer, leases: Leases) -> DirectoryStates:
    if database.dialect == "sqlite":
        return LocalDirectoryStates(writer.announce)
    return SharedDirectoryStates(database, sql, writer, leases.owner)


def _bus(settings: Settings, database: Database) -> EventBus:
    journal = Journal(database)
    if database.dialect == "sqlite":
        return MemoryBus(journal.head)
    return SharedBus(settings.redis_url, journal.identity, journal.head, journal.after)


def _event_tokens(storage: _Storage) -> EventTokens:
    return MemoryEventTokens() if storage.database.dialect == "sqlite" else StoredEventTokens(storage.sql, storage.writer)


def _services(core: _Core, home: Path, api_access: ApiAccess) -> Services:
    directories = _directories(core, home, api_access)
    sessions = _sessions(core)
    pending = _pending(core)
    turns = _turns(core, directories, sessions, pending)
    terminals = _terminals(core, directories)
    runs = _runs(core, directories, sessions, turns, terminals)
    return Services(
        settings=core.settings,
        directories=directories,
        sessions=sessions,
        pending=pending,
        runs=runs,
        events=_events(core),
        users=core.storage.users,
        second_api=cache(partial(_second_api, core, runs)),
        transfer=cache(partial(_transfer, core)),
        vcs=_vcs(core, directories, runs),
        steering=Steering(core.storage.writer, ControlQueues(core.storage.bus)),
        draining=Draining(),
        replicas=core.storage.replicas,
        health=HealthCheck(core.storage.leases),
        webhooks=_webhooks(core, directories),
        terminals=terminals,
        observer=core.telemetry.observer,
        metrics=core.telemetry.metrics,
    )


def _read_gauges(services: Services) -> None:
    """What is looked up when somebody asks for the metrics."""
    metrics, runner = services.metrics, services.runs.runner
    if metrics is None:
        return

    async def waiting_turns() -> float:
        return max(runner.turns() - metrics.running_turns, 0)

    metrics.read("turns_waiting", "Turns that wait for their session, for another server or for a place", waiting_turns)
    metrics.read("journal_head", "The number of the newest event of the database", services.events.replay.head)
    metrics.read("webhook_backlog", "Events that the webhook furthest behind is still to be offered", services.webhooks.backlog)


def _webhooks(core: _Core, directories: DirectoryServices) -> Webhooks:
    settings, storage = core.settings, core.storage
    owners = WebhookOwners(storage.users.users, storage.users.cursors, directories.instances.workspaces.admits)
    requests = PinnedRequests(allow_private=settings.webhook_private_addresses)
    secret = ServerSecret(settings.secret_key, settings.data_dir)
    return Webhooks(storage.database, secret, owners, requests, settings.max_webhooks)


def _terminals(core: _Core, directories: DirectoryServices) -> Terminals:
    toolbox, storage = directories.toolbox, core.storage
    programs = TerminalPrograms(core.sandbox, toolbox.shell, lambda: toolbox.environment)
    elsewhere = " on this server. A terminal is reached through the server that made it." if storage.is_shared else ""
    return Terminals(core.settings, programs, storage.writer, directories.instances.workspaces.admits, elsewhere)


def _webhook_dispatcher(storage: _Storage, webhooks: Webhooks) -> WebhookDispatcher:
    pages = JournalPages(storage.database)
    services = WorkerServices(storage.database, storage.writer, webhooks.owners, pages)
    dispatcher = WebhookDispatcher(
        storage.database,
        storage.bus,
        storage.replicas,
        storage.leases.owner,
        lambda row: webhooks.worker(row, services),
        pages,
        is_shared=storage.is_shared,
    )
    webhooks.changed = dispatcher.changed
    return dispatcher


def _directories(core: _Core, home: Path, api_access: ApiAccess) -> DirectoryServices:
    settings, choices, storage = core.settings, core.choices, core.storage
    projects = Projects(storage.database, storage.sql, storage.writer)
    auth, known = AuthStore(settings.data_dir), KnownCatalogue()
    toolbox = _toolbox(core, known)
    workspaces = _workspaces(core, home, projects, auth)
    mcp = McpSettings(toolbox.environment, toolbox.sandbox, CredentialStore(settings.data_dir), storage.states)
    project_code, hook_seconds = settings.project_plugins, choices.plugin_hook_seconds
    plugins = PluginHost(storage.bus, api_access, project_code=project_code, hook_seconds=hook_seconds)
    scripted, hide = choices.scripted, toolbox.hide_variables
    sources = ModelSources(known, auth, storage.accounts, scripted, core.telemetry.observer, settings.max_part_bytes)
    instances = Instances(workspaces, sources, settings.data_dir, mcp, plugins, hide=hide)
    branches, global_config = Branches(workspaces, storage.states, storage.bus), GlobalConfig(storage.database.locks)
    return DirectoryServices(instances, projects, branches, toolbox, known, auth, global_config, storage.states)


def _toolbox(core: _Core, known: KnownCatalogue) -> Toolbox:
    """Commands see no key of a known provider."""
    key_names = frozenset(name for provider in known.providers.values() for name in provider.env)
    settings = ToolSettings(core.flags, key_names, core.settings.allow_private_addresses)
    return Toolbox(settings, core.sandbox, core.storage.database.locks)


def _workspaces(core: _Core, home: Path, projects: Projects, auth: AuthStore) -> Workspaces:
    settings, organisations = core.settings, Organisations(auth.all, os.environ)
    storage, users = core.storage, core.storage.users.users
    of_each = WorkspaceSettings(
        settings.data_dir,
        core.flags,
        organisations,
        settings.max_snapshot_bytes,
        storage.database.locks,
        storage.states,
        core.sandbox,
        lambda: not users.exist(),
    )
    return Workspaces(of_each, home, settings.root_dirs, projects, settings.idle_seconds, users.roots)


def _sessions(core: _Core) -> SessionServices:
    store = core.storage.store
    return SessionServices(
        store=store,
        service=SessionService(store, core.gate, core.storage.leases),
        all_sessions=AllSessions(store),
        forks=Forks(store, core.quota, core.gate),
        shares=Shares(store),
        statuses=Statuses(store),
        reverts=Reverts(store),
        usage=UsageLedger(core.storage.database),
        search=MessageSearch(store),
    )


def _transfer(core: _Core) -> TransferServices:
    from app.transfer.exports import Exports
    from app.transfer.importer import Importer
    from app.transfer.imports import Imports

    store, settings = core.storage.store, core.settings
    imports = Imports(Importer(store, core.quota), settings.max_part_bytes)
    return TransferServices(Exports(store, settings.data_dir), imports)


def _vcs(core: _Core, directories: DirectoryServices, runs: RunServices) -> VcsServices:
    busy = BusyDirectories(runs.runner, core.storage.store)
    repository_init = RepositoryInit(busy, runs.disposal, core.sandbox)
    patching = Patching(busy, directories.toolbox.locks, core.sandbox)
    return VcsServices(patching, repository_init, _worktrees(core, directories, runs, busy))


def _worktrees(core: _Core, directories: DirectoryServices, runs: RunServices, busy: BusyDirectories) -> Worktrees:
    instances, toolbox = directories.instances, directories.toolbox
    services = WorktreeServices(
        places=instances.workspaces.worktree_places,
        projects=directories.projects,
        busy=busy,
        disposal=runs.disposal,
        tasks=core.tasks,
        start_commands=StartCommands(instances, toolbox.shell, toolbox.environment, toolbox.sandbox),
        locks=core.storage.database.locks,
        announce=core.storage.states.announce,
    )
    return Worktrees(services)


def _pending(core: _Core) -> PendingServices:
    database, sql, writer = core.storage.database, core.storage.sql, core.storage.writer
    observer = core.telemetry.observer
    return PendingServices(Permissions(database, sql, writer, observer), Questions(database, sql, writer, observer))


def _turns(core: _Core, directories: DirectoryServices, sessions: SessionServices, pending: PendingServices) -> TurnServices:
    store, summaries = sessions.store, Summaries(sessions.store)
    return TurnServices(
        store=store,
        statuses=sessions.statuses,
        summaries=summaries,
        titles=Titles(store, summaries, core.tasks),
        tasks=core.tasks,
        host=HostServices(store, pending.permissions, pending.questions),
        toolbox=directories.toolbox,
        outputs=core.outputs,
        instruction_pages=core.instruction_pages,
        observer=core.telemetry.observer,
    )


def _runs(
    core: _Core, directories: DirectoryServices, sessions: SessionServices, turns: TurnServices, terminals: Terminals
) -> RunServices:
    storage, gate, store, toolbox = core.storage, core.gate, sessions.store, directories.toolbox
    runner = Runner(store, sessions.statuses, storage.leases, gate, core.settings.max_running_sessions)
    intake = _intake(core, sessions, toolbox)
    prompts = Prompts(turns, intake, runner, gate, storage.leases)
    most_waiting = core.settings.max_waiting_prompts
    commands = Commands(toolbox.shell, toolbox.environment, toolbox.sandbox)
    queue = PromptQueue(store, prompts, intake, runner, storage.leases, directories.instances, most_waiting)
    return RunServices(
        runner=runner,
        prompts=prompts,
        queue=queue,
        actions=SessionActions(
            store, prompts, intake, runner, gate, sessions.reverts, commands, directories.projects, storage.leases
        ),
        deletion=Deletion(store, sessions.service, runner, gate, storage.leases, core.tasks),
        disposal=Disposal(directories.instances, runner, store, storage.states, terminals),
        retention=_retention(core.settings, storage, sessions.service, gate),
    )


def _second_api(core: _Core, runs: RunServices) -> SecondApiServices:
    from app.intake.admission import Admissions
    from app.timeline.service import Timeline

    store = core.storage.store
    timeline = Timeline(core.storage.database, store, core.storage.bus)
    return SecondApiServices(timeline, Admissions(store, runs.prompts, runs.queue, timeline))


def _retention(
    settings: Settings, storage: _Storage, sessions: SessionService, gate: SessionGate, rest: float = REST
) -> Retention:
    return Retention(storage.database, storage.store, sessions, gate, storage.leases, settings.data_dir, rest)


@asynccontextmanager
async def retention_by_itself(settings: Settings) -> AsyncIterator[Retention]:
    """Without a server; beside those of a PostgreSQL, which hear of it by the journal."""
    storage = _open_storage(settings, "", NOBODY, MemoryBus())
    storage.writer.has_owners = True
    gate = SessionGate()
    try:
        rest = REST if storage.is_shared else 0
        yield _retention(settings, storage, SessionService(storage.store, gate, storage.leases), gate, rest)
    finally:
        await storage.store.drain()
        await storage.leases.close()
        storage.database.close()


def _intake(core: _Core, sessions: SessionServices, toolbox: Toolbox) -> Intake:
    settings = core.settings
    files = FileReader(sessions.store, toolbox.read, toolbox.list, toolbox.times, core.outputs)
    limits = PromptLimits(settings.max_part_bytes, settings.max_waiting_prompts)
    return Intake(sessions.store, Resolver(files), sessions.reverts, limits, core.quota)


def _events(core: _Core) -> EventServices:
    replay = Replay(core.storage.database, core.storage.store, core.storage.bus, core.settings.max_journal_bytes)
    return EventServices(core.storage.bus, replay, core.choices.heartbeat_seconds)


def _users(settings: Settings, database: Database, sql: Statements) -> tuple[UserServices, ModelAccounts]:
    secret = ServerSecret(settings.secret_key, settings.data_dir)
    users = Users(database, sql, expected=settings.oidc_issuer is not None)
    keys = UserKeys(database, sql, secret)
    budgets = Budgets(database, sql, users, DayLimits(settings.user_max_cost, settings.user_max_tokens))
    accounts = ModelAccounts(users, keys, budgets, settings.shared_keys)
    return UserServices(users, EventCursors(secret), keys, RateLimits(settings.redis_url)), accounts


def _recovery(core: _Core, services: Services) -> Recovery:
    instances, runs = services.directories.instances, services.runs
    pending = (services.pending.permissions.pending, services.pending.questions.pending)
    reverts = UnfinishedReverts(core.storage.store, instances, runs.actions)
    continues = core.settings.interrupted == "continue"
    storage = core.storage
    prompted_only = not core.choices.recovers_all
    return Recovery(
        storage.store, storage.leases, pending, instances, runs.prompts, reverts, continues=continues, prompted_only=prompted_only
    )


def _housekeeping(core: _Core, services: Services, search_index: SearchIndex) -> Housekeeping:
    directories, events = services.directories, services.events
    return Housekeeping(
        events.replay,
        services.replicas,
        directories.instances,
        directories.branches,
        services.runs.runner,
        events.bus,
        core.outputs,
        core.settings.data_dir,
        core.settings.idle_seconds,
        search_index,
        services.runs.retention,
        core.settings.retention_days,
    )
