"""Announces a change of a directory's checked-out branch."""

from weakref import WeakSet

from app.bus.memory import MemoryBus
from app.schema.event import BranchName, EventVcsBranchUpdated
from app.storage.directory_state import DirectoryStates
from app.workspace.workspace import Workspace
from app.workspace.workspaces import Workspaces

BRANCH = "branch"


class Branches:
    def __init__(self, workspaces: Workspaces, states: DirectoryStates, bus: MemoryBus) -> None:
        self._workspaces = workspaces
        self._states = states
        self._bus = bus
        self._compared: WeakSet[Workspace] = WeakSet()
        """Those whose branch at their opening was compared with what other servers have announced."""

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
        changed = await head.refresh()
        if changed or workspace not in self._compared:
            self._compared.add(workspace)
            updated = EventVcsBranchUpdated(properties=BranchName(branch=head.branch))
            self._states.announce_change(workspace.location.directory, BRANCH, head.branch, updated, seen=changed)
        return head.branch
