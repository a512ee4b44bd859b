"""Follows what clients have asked of other servers of the database about directories that are open here."""

import asyncio
import logging
from collections.abc import Iterable

from app.events.bus.memory import MemoryBus
from app.record.directory_state import DISPOSED, EVERYWHERE, DirectoryState, DirectoryStates
from app.record.repositories import work_rows
from app.schema.errors import ServiceError
from app.schema.event import EventGlobalDisposed, EventServerInstanceDisposed, OfDirectory
from app.sessions.live import LiveSessions
from app.tools.mcp import signing_in
from app.tools.mcp.servers import CODE, OWN_STATES
from app.users.principal import is_within
from app.util.project_files import resolved
from app.util.tasks import TaskSet, every
from app.workspace.instances import Instances
from app.workspace.terminals.terminals import Terminals
from app.workspace.workspace import CONFIGURATION

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5


class DirectoryFollower:
    def __init__(self, states: DirectoryStates, instances: Instances, bus: MemoryBus, terminals: Terminals) -> None:
        self._states = states
        self._instances = instances
        self._bus = bus
        self._terminals = terminals
        self._following = TaskSet()
        self._tasks = TaskSet()

    async def start(self) -> None:
        """Does nothing if there can be no other server."""
        if self._states.is_shared:
            await self._states.changes()
            what = "following what other servers are asked"
            self._following.start(every(POLL_SECONDS, self.poll, what), what)

    async def stop(self) -> None:
        await self._following.cancel()

    async def poll(self) -> None:
        for state in await self._states.changes():
            self._tasks.start(self._follow(state), f"follow {state.name} of {state.directory}")

    async def _follow(self, state: DirectoryState) -> None:
        try:
            if state.name == DISPOSED:
                await self._forget(state.directory)
            elif state.name == CONFIGURATION:
                self._instances.workspaces.reload(state.directory)
            elif state.name.startswith(OWN_STATES):
                await self._follow_mcp(state)
        except Exception:
            log.exception("what another server was asked about %s was not done here", state.directory or "all directories")

    async def _forget(self, directory: str) -> None:
        """The streams of one directory end after the event of its disposal."""
        await self._terminals.end_all(None if directory == EVERYWHERE else directory)
        if directory == EVERYWHERE:
            for each in self._instances.workspaces.open_directories():
                self._bus.disconnect(each)
                await self._instances.forget(each)
        else:
            await self._instances.forget(directory)

    async def _follow_mcp(self, state: DirectoryState) -> None:
        servers = self._instances.open_mcp(state.directory)
        if servers is None:
            return
        if state.name.startswith(CODE):
            await signing_in.finish_from_other_server(servers, state)
        else:
            servers.follow([state])


class Disposal:
    def __init__(self, instances: Instances, live: LiveSessions, states: DirectoryStates, terminals: Terminals) -> None:
        self._instances = instances
        self._live = live
        self._states = states
        self._terminals = terminals

    async def directory(self, directory: str) -> None:
        held = await self._live.store.query(work_rows.held_sessions, directory)
        await self._abort([*self._live.of_directory(directory), *held])
        await self._terminals.end_all(directory)
        disposed = EventServerInstanceDisposed(properties=OfDirectory(directory=directory))
        await self._states.dispose(directory, OWN_STATES, disposed)
        await self._instances.forget(directory)

    async def all(self) -> None:
        """Directories that are open on other servers alone are forgotten there without an event of their own."""
        for directory in self._instances.workspaces.open_directories():
            await self.directory(directory)
        await self._abort(await self._live.store.query(work_rows.held_sessions, None))
        await self._terminals.end_all()
        await self._states.put(EVERYWHERE, DISPOSED)
        await self._states.announce("global", EventGlobalDisposed())

    async def _abort(self, sessions: Iterable[str]) -> None:
        await asyncio.gather(*(self._live.abort(session_id) for session_id in set(sessions)))


class DirectoryBusy(ServiceError):
    status = 409
    name = "DirectoryBusyError"

    def __init__(self, directory: str) -> None:
        super().__init__(f"A session works in {directory}. Abort it or wait for its end, then try again.", directory=directory)


async def require_idle(live: LiveSessions, tree: str) -> None:
    """Raises DirectoryBusy if a session works in a directory or below it, on any server of the database."""
    here, real = live.directories(), resolved(tree)  # not in a thread: it is as fast as the query
    for directory in here.union((await live.store.query(work_rows.held_sessions)).values()):
        if is_within(resolved(directory), [real]):
            raise DirectoryBusy(directory)
