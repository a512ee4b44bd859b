"""Disposal of a directory on all servers of the database: aborts its turns, ends its terminals, announces it, disconnects its
clients and unloads it."""

import asyncio
from collections.abc import Iterable

from app.mcp.servers import OWN_STATES
from app.pty.terminals import Terminals
from app.schema.event import EventGlobalDisposed, EventServerInstanceDisposed, OfDirectory
from app.session.live import LiveSessions
from app.storage.directory_state import DISPOSED, EVERYWHERE, DirectoryStates
from app.storage.repositories import lease_rows
from app.workspace.instances import Instances


class Disposal:
    def __init__(self, instances: Instances, live: LiveSessions, states: DirectoryStates, terminals: Terminals) -> None:
        self._instances = instances
        self._live = live
        self._states = states
        self._terminals = terminals

    async def directory(self, directory: str) -> None:
        held = await self._live.store.query(lease_rows.held_sessions, directory)
        await self._abort([*self._live.of_directory(directory), *held])
        await self._terminals.end_all(directory)
        disposed = EventServerInstanceDisposed(properties=OfDirectory(directory=directory))
        await self._states.dispose(directory, OWN_STATES, disposed)
        await self._instances.forget(directory)

    async def all(self) -> None:
        """Directories that are open on other servers alone are forgotten there without an event of their own."""
        for directory in self._instances.workspaces.open_directories():
            await self.directory(directory)
        await self._abort(await self._live.store.query(lease_rows.held_sessions, None))
        await self._terminals.end_all()
        await self._states.put(EVERYWHERE, DISPOSED)
        await self._states.announce("global", EventGlobalDisposed())

    async def _abort(self, sessions: Iterable[str]) -> None:
        await asyncio.gather(*(self._live.abort(session_id) for session_id in set(sessions)))
