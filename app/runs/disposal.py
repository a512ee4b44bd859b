"""Letting go of a directory: its turns are aborted, its listeners told and disconnected, what was loaded of it forgotten."""

import asyncio

from app.bus.base import EventBus
from app.runs.runner import Runner
from app.schema.event import EventGlobalDisposed, EventServerInstanceDisposed, OfDirectory
from app.storage.writer import Writer
from app.workspace.instances import Instances


class Disposal:
    def __init__(self, instances: Instances, runner: Runner, writer: Writer, bus: EventBus) -> None:
        self._instances = instances
        self._runner = runner
        self._writer = writer
        self._bus = bus

    async def directory(self, directory: str) -> None:
        running = self._runner.sessions_of(directory)
        await asyncio.gather(*(self._runner.abort(session_id) for session_id in running))
        disposed = EventServerInstanceDisposed(properties=OfDirectory(directory=directory))
        await self._writer.announce(directory, disposed)
        self._bus.disconnect(directory)
        await self._instances.forget(directory)

    async def all(self) -> None:
        for directory in self._instances.workspaces.open_directories():
            await self.directory(directory)
        await self._writer.announce("global", EventGlobalDisposed())
