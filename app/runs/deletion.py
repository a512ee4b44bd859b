"""Deleting a session: its turns are aborted, nothing new begins in it or below it, then all of it goes in one transaction."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from app.project.location import Location
from app.runs.runner import Runner
from app.session.gate import HoldKind, SessionGate
from app.session.lease import Leases
from app.session.service import SessionService
from app.session.session_tasks import SessionTasks
from app.session.store import Store


class Deletion:
    def __init__(
        self, store: Store, sessions: SessionService, runner: Runner, gate: SessionGate, leases: Leases, tasks: SessionTasks
    ) -> None:
        self._leases = leases
        self._store = store
        self._sessions = sessions
        self._runner = runner
        self._gate = gate
        self._tasks = tasks

    async def delete(self, location: Location, session_id: str) -> None:
        """The session and its descendants, those too that are created meanwhile. Raises NotFound."""
        async with AsyncExitStack() as holds:
            held: list[str] = []
            while new := [found.id for found in await self._store.session_tree(session_id) if found.id not in held]:
                held.append(new[-1])
                await holds.enter_async_context(self._stopped(new[-1]))
            await self._sessions.remove(location.directory, session_id)
            for deleted in held:
                self._runner.discard(deleted)

    @asynccontextmanager
    async def _stopped(self, session_id: str) -> AsyncIterator[None]:
        """Hold a session whose turn is aborted. Parents before their children: the turn of a parent that is being aborted waits
        for what it started below."""
        hold = self._gate.request(session_id, HoldKind.DELETE)
        try:
            await self._runner.abort(session_id)
            await hold.granted
            await self._tasks.cancel(session_id)
            await self._leases.acquire(session_id, wait=True)
            yield
        finally:
            self._leases.release(session_id)
            self._gate.release(hold)
