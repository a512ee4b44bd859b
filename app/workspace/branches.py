"""Tells the clients of a directory when another branch is checked out there, by whomever."""

from app.bus.base import Event
from app.bus.memory import MemoryBus
from app.schema.event import BranchName, EventVcsBranchUpdated
from app.storage.writer import Change, Writer
from app.workspace.workspace import Workspace
from app.workspace.workspaces import Workspaces


class Branches:
    def __init__(self, workspaces: Workspaces, writer: Writer, bus: MemoryBus) -> None:
        self._workspaces = workspaces
        self._writer = writer
        self._bus = bus

    async def look(self) -> None:
        """At every directory in use, if anyone listens."""
        if self._bus.listeners():
            for workspace in self._workspaces.all_open():
                await self.current(workspace)

    async def current(self, workspace: Workspace) -> str:
        """The branch of a directory, announced if it is new; empty when HEAD is detached and outside git."""
        head = workspace.head
        if head is None:
            return ""
        if await head.look():
            updated = EventVcsBranchUpdated(properties=BranchName(branch=head.branch))
            self._writer.post(Change(events=[Event(updated.wire_json(), workspace.place.directory)]))
        return head.branch
