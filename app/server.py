"""Makes all services of a server and connects them."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from app.events.bus.base import Event
from app.events.bus.memory import MemoryBus
from app.events.bus.shared import SharedBus
from app.events.telemetry.telemetry import open_telemetry
from app.permissions.editor_files import EditorFiles
from app.permissions.questions import Questions
from app.permissions.service import Permissions
from app.project.config.flags import Flags
from app.project.config.well_known import Organisations
from app.project.registry import Projects
from app.project.sandbox.sandbox import open_sandbox
from app.providers.base import Provider
from app.providers.catalogue import Catalogue
from app.providers.connected import AuthStore
from app.providers.registry import shared_scripted
from app.record.directory_state import DirectoryStates
from app.record.repositories import journal_rows, session_rows
from app.record.writer import Writer
from app.schema.errors import ServiceError
from app.sessions.fork import Forks
from app.sessions.lease import Leases
from app.sessions.live import LiveSessions
from app.sessions.live_parts import SessionPublisher
from app.sessions.replay import Replay
from app.sessions.replicas import HealthCheck, Replicas
from app.sessions.retention import Retention
from app.sessions.revert import Reverts
from app.sessions.service import SessionService
from app.sessions.share import Shares
from app.sessions.steering import Steering
from app.sessions.store import Store
from app.sessions.summary import SessionTasks, Summaries
from app.sessions.usage import ProjectQuota
from app.settings import Settings
from app.tools.mcp.servers import McpSettings
from app.tools.mcp.values import CredentialStore
from app.tools.plugins.host import ApiAccess, PluginHost
from app.tools.plugins.runner import HOOK_SECONDS
from app.tools.toolbox import Toolbox
from app.tools.truncation import OutputStore
from app.tools.web import PinnedRequests
from app.transfer.backup.placing import open_database
from app.transfer.webhooks.dispatcher import WebhookDispatcher
from app.transfer.webhooks.service import Webhooks
from app.transfer.webhooks.worker import WebhookOwners
from app.turn.intake.intake import Intake
from app.turn.intake.prompt_parts import PromptParts
from app.turn.intake.prompt_queue import PromptQueue
from app.turn.intake.prompts import Prompts
from app.turn.intake.session_actions import SessionActions
from app.turn.runs.recovery import Recovery
from app.turn.titles import Titles
from app.turn.turn_context import TurnServices
from app.users.accounts import Budgets, DayLimits, ModelAccounts, UserKeys
from app.users.login import Login, RateLimits
from app.users.oidc import OidcLogins
from app.users.tokens import ServerSecret, StoredEventTokens, TokenStore
from app.users.users import Users
from app.util import processes
from app.util.data_files import ServerLocks, volume_id
from app.util.shared_threads import THREADS
from app.workspace.commands import Commands
from app.workspace.directories import DirectoryFollower, Disposal
from app.workspace.housekeeping import Housekeeping
from app.workspace.instances import Instances, ModelSources
from app.workspace.instructions import InstructionPages
from app.workspace.lsp.servers import LspSettings
from app.workspace.terminals.programs import TerminalPrograms
from app.workspace.terminals.terminals import Terminals
from app.workspace.user_changes import UserChanges
from app.workspace.vcs.worktrees import CommandSettings, Worktrees
from app.workspace.workspace import WorkspaceSettings
from app.workspace.workspaces import Branches, Workspaces

if TYPE_CHECKING:
    from app.sessions.timeline.service import Timeline
    from app.transfer.importing import Importer

log = logging.getLogger(__name__)


class ServerStopping(ServiceError):
    """Nothing was stored; the request may be made again after `retry_after` seconds."""

    status = 503
    name = "ServerStoppingError"
    retry_after: ClassVar[int] = 5
    text = "The server is stopping and takes no new work. Nothing was stored: send this again when it is back."


class Draining:
    """Whether the server is stopping: then it takes no new work, and serves only what lets running turns finish. Also counts the
    requests that start work."""

    def __init__(self) -> None:
        self.has_begun = False
        self.requests = 0
        self._none_left = asyncio.Event()
        self._none_left.set()

    def begin(self) -> None:
        """From now on requests that would start or change work are answered with 503. Safe to call from a signal handler."""
        self.has_begun = True

    def take(self) -> None:
        """For a request that starts work: the server's end waits until it is `done`. Raises ServerStopping."""
        if self.has_begun:
            raise ServerStopping
        self.requests += 1
        self._none_left.clear()

    def done(self) -> None:
        self.requests -= 1
        if not self.requests:
            self._none_left.set()

    async def requests_taken(self) -> None:
        """Returns when every admitted request has started its work."""
        await self._none_left.wait()


@dataclass(frozen=True)
class Choices:
    """What a test, or a program with a server in it, may choose otherwise."""

    scripted: Callable[[], Provider] = shared_scripted
    heartbeat_seconds: float = 10.0
    plugin_hook_seconds: float = HOOK_SECONDS
    recovers_all: bool = True
    """False for a server that lives for one command: it recovers only interrupted sessions that it is sent a prompt for."""


class Server:
    """Everything that a running server has, made in the order of need: routes and commands call it. `start` before the first
    request, `stop` after the last."""

    def __init__(
        self,
        settings: Settings,
        home: Path,
        choices: Choices = Choices(),
        api_access: ApiAccess = ApiAccess(),
        address: str = "",
        flags: Flags | None = None,
    ) -> None:
        """`home`: the server's own directory. `api_access`: for plugins. `address`: as other servers list this one."""
        self.settings = settings
        self.choices = choices
        self.flags = flags or Flags.from_env()
        self.telemetry = open_telemetry(settings.metrics, os.environ)
        self.observer, self.metrics = self.telemetry.observer, self.telemetry.metrics
        self.sandbox = open_sandbox(settings)
        self.draining = Draining()
        self._make_storage(address)
        self._make_users()
        self._make_directories(home, api_access)
        self._make_sessions()
        self._make_runs()
        self._make_vcs()
        self._make_webhooks()
        self._make_what_repeats()
        self._read_gauges()
        self._skip_grace_period = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = AsyncExitStack()

    # The services.

    def _make_storage(self, address: str) -> None:
        settings = self.settings
        self.database = open_database(settings)
        self.is_shared = self.database.dialect != "sqlite"
        """Whether other servers may use the database too."""
        self.bus: MemoryBus = self._make_bus()
        publisher = SessionPublisher(self.bus)
        self.writer = Writer(self.database, publisher.publish, observer=self.observer)
        self.store = Store(self.database, self.writer, publisher)
        self.locks = None if self.is_shared else ServerLocks(settings.data_dir / "servers")
        self.leases = Leases(self.database, self.writer, self.locks)
        self.replicas = Replicas(
            self.database,
            self.writer,
            self.leases,
            address=address,
            volume=volume_id(settings.data_dir) if self.is_shared else None,
        )
        if isinstance(self.bus, SharedBus):
            self.replicas.cursor = self.bus.cursor
        self.replay = Replay(self.database, self.store, self.bus, settings.max_journal_bytes)

    def _make_bus(self) -> MemoryBus:
        head = partial(self.database.read, journal_rows.newest_seq)
        if not self.is_shared:
            return MemoryBus(head)
        identity = partial(self.database.read, journal_rows.database_identity)
        return SharedBus(self.settings.redis_url, identity, head, self._events_after)

    async def _events_after(self, cursor: int) -> list[Event]:
        page = partial(journal_rows.events_after, seq=cursor, directory=None, max_bytes=journal_rows.PAGE_BYTES)
        rows, _ = await self.database.read(page)
        return list(map(journal_rows.event_of, rows))

    def _make_users(self) -> None:
        settings, database = self.settings, self.database
        self.secret = ServerSecret(settings.secret_key, settings.data_dir)
        self.users = Users(database, has_identity_provider=settings.oidc_issuer is not None)
        self.user_keys = UserKeys(database, self.secret)
        budgets = Budgets(database, self.users, DayLimits(settings.user_max_cost, settings.user_max_tokens))
        self.accounts = ModelAccounts(self.users, self.user_keys, budgets, settings.shared_keys)
        self.rates = RateLimits(settings.redis_url)
        oidc = None
        if settings.oidc_issuer and settings.oidc_audience:
            oidc = OidcLogins(settings.oidc_issuer, settings.oidc_audience, settings.oidc_role_claim, self.users)
        self.login = Login(
            self.flags.server_username,
            self.flags.server_password,
            TokenStore(settings.data_dir),
            self.rates,
            StoredEventTokens(self.writer) if self.is_shared else None,
            self.users,
            oidc,
        )

    def _make_directories(self, home: Path, api_access: ApiAccess) -> None:
        settings, data_dir = self.settings, self.settings.data_dir
        self.states = DirectoryStates(self.database, self.writer, self.leases.owner if self.is_shared else None)
        self.projects = Projects(self.database, self.writer)
        self.auth, self.known = AuthStore(data_dir), Catalogue()
        # Commands see no key of a known provider.
        key_names = frozenset(name for provider in self.known.providers.values() for name in provider["env"])
        self.toolbox = Toolbox(self.flags, key_names, settings.allow_private_addresses, self.sandbox, self.database.locks)
        self.workspaces = self._make_workspaces(home)
        self.instances = Instances(
            self.workspaces,
            ModelSources(self.known, self.auth, self.accounts, self.choices.scripted, self.observer, settings.max_part_bytes),
            data_dir,
            McpSettings(self.toolbox.environment, self.sandbox, CredentialStore(data_dir), self.states),
            LspSettings(self.toolbox.environment, self.sandbox, self.states.announce, self.flags),
            PluginHost(
                self.bus, api_access, project_code=settings.project_plugins, hook_seconds=self.choices.plugin_hook_seconds
            ),
            hide=self.toolbox.hide_variables,
        )
        self.branches = Branches(self.workspaces, self.states, self.bus)
        self.terminals = Terminals(
            settings,
            TerminalPrograms(self.sandbox, self.toolbox.shell, lambda: self.toolbox.environment),
            self.writer,
            self.workspaces.admits,
            " on this server. A terminal is reached through the server that made it." if self.is_shared else "",
        )

    def _make_workspaces(self, home: Path) -> Workspaces:
        settings, users = self.settings, self.users
        of_each = WorkspaceSettings(
            data_dir=settings.data_dir,
            flags=self.flags,
            organisations=Organisations(self.auth.all, os.environ),
            snapshot_bytes=settings.max_snapshot_bytes,
            locks=self.database.locks,
            states=self.states,
            sandbox=self.sandbox,
            trusts_projects=lambda: not users.exist(),
        )
        return Workspaces(of_each, home, settings.root_dirs, self.projects, settings.idle_seconds, users.roots)

    def _make_sessions(self) -> None:
        database, store = self.database, self.store
        self.live = LiveSessions(store, self.leases)
        self.tasks = SessionTasks()
        self.quota = ProjectQuota(database, self.settings.max_project_bytes)
        self.sessions = SessionService(store, self.live)
        self.forks = Forks(store, self.quota, self.live)
        self.shares = Shares(store)
        self.reverts = Reverts(store)
        self.summaries = Summaries(store)
        self.permissions = Permissions(database, self.writer, self.observer)
        self.questions = Questions(database, self.writer, self.observer)
        self.editor_files = EditorFiles()
        self.steering = Steering(self.writer, self.bus)
        self.health = HealthCheck(self.leases)

    def _make_runs(self) -> None:
        settings, store, live = self.settings, self.store, self.live
        self.outputs = OutputStore(settings.data_dir / "tool-output")
        self.instruction_pages = InstructionPages()
        toolbox = self.toolbox
        parts = PromptParts(store, toolbox.read, toolbox.list, toolbox.times, self.outputs, self.editor_files)
        self.intake = Intake(store, parts, self.quota, settings.max_part_bytes, settings.max_waiting_prompts)
        self.prompts = Prompts(self._turn_services(), self.intake, live, settings.max_running_sessions)
        self.queue = PromptQueue(store, self.prompts, self.intake, live, self.instances, most=settings.max_waiting_prompts)
        self.actions = SessionActions(
            store=store,
            prompts=self.prompts,
            intake=self.intake,
            live=live,
            reverts=self.reverts,
            commands=Commands(toolbox.shell, toolbox.environment, self.sandbox),
            projects=self.projects,
            sessions=self.sessions,
            tasks=self.tasks,
        )
        self.disposal = Disposal(self.instances, live, self.states, self.terminals)
        self.retention = Retention(self.database, store, self.sessions, live, settings.data_dir)

    def _turn_services(self) -> TurnServices:
        return TurnServices(
            store=self.store,
            summaries=self.summaries,
            titles=Titles(self.store, self.summaries, self.tasks),
            tasks=self.tasks,
            permissions=self.permissions,
            questions=self.questions,
            editor_files=self.editor_files,
            toolbox=self.toolbox,
            outputs=self.outputs,
            instruction_pages=self.instruction_pages,
            observer=self.observer,
        )

    def _make_vcs(self) -> None:
        toolbox = self.toolbox
        self.worktrees = Worktrees(
            self.workspaces.worktree_places,
            self.projects,
            self.live,
            self.disposal,
            self.tasks,
            CommandSettings(self.instances, toolbox.shell, toolbox.environment, self.sandbox),
            self.database.locks,
            self.states.announce,
        )

    def _make_webhooks(self) -> None:
        settings, database, bus = self.settings, self.database, self.bus
        owners = WebhookOwners(self.users, self.secret, self.workspaces.admits)
        requests = PinnedRequests(allow_private=settings.webhook_private_addresses)
        self.webhooks = webhooks = Webhooks(database, self.writer, self.secret, owners, requests, settings.max_webhooks)
        self.deliveries = WebhookDispatcher(
            database, bus, self.replicas, self.leases.owner, webhooks.worker, is_shared=self.is_shared
        )
        webhooks.changed = self.deliveries.changed

    def _make_what_repeats(self) -> None:
        settings = self.settings
        self.follower = DirectoryFollower(self.states, self.instances, self.bus, self.terminals)
        self.recovery = Recovery(
            self.store,
            self.leases,
            (self.permissions.pending, self.questions.pending),
            self.instances,
            self.prompts.turns,
            self.live,
            self.actions.unrevert,
            continues=settings.interrupted == "continue",
            prompted_only=not self.choices.recovers_all,
        )
        self.housekeeping = Housekeeping(
            replay=self.replay,
            replicas=self.replicas,
            instances=self.instances,
            branches=self.branches,
            user_changes=UserChanges(self.users, self.login, self.workspaces, self.live, self.terminals),
            live=self.live,
            bus=self.bus,
            outputs=self.outputs,
            data_dir=settings.data_dir,
            idle_seconds=settings.idle_seconds,
            database=self.database,
            retention=self.retention,
            retention_days=settings.retention_days,
        )

    def _read_gauges(self) -> None:
        """Values that are looked up when the metrics are fetched."""
        metrics, live = self.metrics, self.live
        if metrics is None:
            return

        async def waiting_turns() -> float:
            return max(live.turns() - metrics.running_turns, 0)

        metrics.read("turns_waiting", "Turns that wait for their session, for another server or for a place", waiting_turns)
        metrics.read("journal_head", "The number of the newest event of the database", self.replay.head)
        metrics.read("webhook_backlog", "Events that the webhook furthest behind is still to be offered", self.webhooks.backlog)

    # Services that are made on first use.

    @cached_property
    def timeline(self) -> "Timeline":
        from app.sessions.timeline.service import Timeline

        return Timeline(self.store)

    @cached_property
    def importer(self) -> "Importer":
        from app.transfer.importing import Importer

        return Importer(self.store, self.quota)

    # Start and end.

    async def start(self) -> None:
        """Repairs what a crash left, then begins housekeeping."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(THREADS)
        self._close_at_stop()
        if ended := await asyncio.to_thread(processes.end_abandoned):
            log.warning("ended %d processes of commands that a killed server left running", ended)
        self._hold_lock()
        # Reads users' roots, which sessions that are recovered may work in.
        self.writer.has_owners = bool(await self.users.all()) or await self.database.read(session_rows.has_owned_sessions)
        await self.workspaces.start()
        await self.bus.start()
        await self.replicas.start()
        await self.follower.start()
        if self.choices.recovers_all:
            await self.recovery.run()
        self.recovery.watch()
        if self.choices.recovers_all and self.is_shared:
            self.queue.watch()
        elif self.choices.recovers_all:
            await self.queue.resume()
        self.live.watch()
        if self.locks:
            self.locks.remove_unlocked()
        self.housekeeping.start()
        self.telemetry.start()
        self.deliveries.start()

    def _close_at_stop(self) -> None:
        """The last of these is closed first. What has not been started has nothing to close."""
        if self.locks:
            self._running.callback(self.locks.release)
        self._running.push_async_callback(self.telemetry.stop)
        self._running.callback(self.database.close)
        for close in (
            self.bus.stop,
            self.instruction_pages.close,
            self.instances.close,
            self.questions.pending.close,
            self.permissions.pending.close,
            self.replicas.unregister,
            self.leases.close,
            self.deliveries.stop,
            self.store.barrier,
            self.tasks.close,
            self.live.close,
            self.queue.close,
            self.recovery.close,
            self.follower.stop,
            self.terminals.close,
            self.housekeeping.stop,
        ):
            self._running.push_async_callback(close)

    async def stop(self) -> None:
        """Aborts turns and finishes their records, writes everything, then closes listeners and the database. Each part is closed
        even if another fails; the errors are raised at the end. Also stops what was started when `start` failed."""
        await self._running.aclose()

    def _hold_lock(self) -> None:
        try:
            if self.locks:
                self.locks.hold(self.leases.owner)
        except OSError as error:
            log.warning("%s: files there cannot be locked, so what a killed server leaves is recovered some seconds later", error)

    async def wind_down(self) -> None:
        """Before `stop`, while clients are connected: running turns have the grace period to finish, then are handed over or
        aborted. Then the event streams are ended. There is no `server.instance.disposed`: OpenCode's terminal client would load
        all anew, from a server that does not answer any more, and end itself."""
        self.draining.begin()
        await self.recovery.close()
        await self.queue.close()
        await self._within_grace_period(self._work_done())
        if self.is_shared and self.settings.interrupted == "continue":
            await self.live.hand_over()
        await self.live.close()
        await self.terminals.close()
        self.editor_files.release()
        self.bus.close()

    async def _work_done(self) -> None:
        """Returns when all accepted requests are answered, and what turns leave to be done is stored. Requests come first,
        because they start turns."""
        await self.draining.requests_taken()
        await self.live.all_ended()
        await self.tasks.finished()

    async def _within_grace_period(self, work: Coroutine[Any, Any, None]) -> None:
        waits = [asyncio.create_task(wait) for wait in (work, self._skip_grace_period.wait())]
        await asyncio.wait(waits, timeout=self.settings.shutdown_seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def skip_grace_period(self) -> None:
        """Aborts running turns now. Safe to call from a signal handler, also before `start`."""
        if self._loop is None:
            self._skip_grace_period.set()
        else:
            self._loop.call_soon_threadsafe(self._skip_grace_period.set)
