"""Deleting a session: its turns are aborted, nothing new begins in it or below it, then all of it goes in one transaction."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from app.project.location import Location
from app.session.live import LiveSessions, SessionWork, WorkKind
from app.session.service import SessionService
from app.session.summary import SessionTasks


class Deletion:
    def __init__(self, sessions: SessionService, live: LiveSessions, tasks: SessionTasks) -> None:
        self._sessions = sessions
        self._live = live
        self._tasks = tasks

    async def delete(self, location: Location, session_id: str) -> None:
        """The session and its descendants, those too that are created meanwhile. Raises NotFound."""
        async with AsyncExitStack() as stopped:
            held: list[str] = []
            while new := [found.id for found in await self._live.store.session_tree(session_id) if found.id not in held]:
                held.append(new[-1])
                await stopped.enter_async_context(self._stopped(new[-1], location.directory))
            await self._sessions.remove(location.directory, session_id)
            for deleted in held:
                self._live.get(deleted).discard()

    @asynccontextmanager
    async def _stopped(self, session_id: str, directory: str) -> AsyncIterator[None]:
        """A session whose works are aborted, and in which nothing begins. Parents before their children: the turn of a parent
        that is being aborted waits for what it started below."""
        live, deletion = self._live.get(session_id), SessionWork(kind=WorkKind.DELETE, directory=directory)
        live.begin(deletion)
        try:
            await self._live.abort(session_id)
            async with live.messages:
                await live.first(deletion)
                await self._tasks.cancel(session_id)
                await self._live.leases.acquire(session_id, wait=True)
                yield
        finally:
            self._live.leases.release(session_id)
            live.end(deletion)
