"""Announces a change of a directory's checked-out branch."""

from app.bus.base import EventBus
from app.schema.event import BranchName, EventVcsBranchUpdated
from app.storage.writer import Writer
from app.workspace.workspace import Workspace
from app.workspace.workspaces import Workspaces


class Branches:
    def __init__(self, workspaces: Workspaces, writer: Writer, bus: EventBus) -> None:
        self._workspaces = workspaces
        self._writer = writer
        self._bus = bus

    async def check_all(self) -> None:
        """Checks every directory in use, if any client listens."""
        if self._bus.listeners():
            for workspace in self._workspaces.all_open():
                await self.current(workspace)

    async def current(self, workspace: Workspace) -> str:
        """The branch of a directory, announced if it changed; empty if HEAD is detached, and outside git."""
        head = workspace.head
        if head is None:
            return ""
        if await head.refresh():
            updated = EventVcsBranchUpdated(properties=BranchName(branch=head.branch))
            self._writer.announce(workspace.location.directory, updated)
        return head.branch
