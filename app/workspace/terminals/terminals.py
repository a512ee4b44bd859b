"""The terminals of this server: made, listed, changed and ended. Each belongs to the user who made it.

Their programs run here, so other servers of the database know only their events.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from app.events.bus.base import Event
from app.project.sandbox.scope import SandboxWorkspace
from app.record.writer import Writer
from app.schema.errors import BadRequest, NotFound, ServiceError, TooMany
from app.schema.event import (
    AnnouncedEvent,
    EventPtyCreated,
    EventPtyDeleted,
    EventPtyExited,
    EventPtyUpdated,
    PtyExit,
    PtyInfo,
    PtyRef,
)
from app.schema.terminal import Pty, PtyInput, PtyUpdate
from app.settings import Settings
from app.users.principal import Principal
from app.util import ids
from app.workspace.terminals.programs import TerminalPrograms
from app.workspace.terminals.terminal import Terminal


class PtyNotFound(NotFound):
    tag = "PtyNotFoundError"

    def __init__(self, pty_id: str, elsewhere: str = "") -> None:
        super().__init__(f"There is no terminal {pty_id}{elsewhere}", ptyID=pty_id)


class PtyForbidden(ServiceError):
    status = 403
    name = "PtyForbiddenError"
    tag = "PtyForbiddenError"


class TerminalsOff(PtyForbidden):
    text = "This server has no terminals (OPENSESSION_TERMINALS=off)."


class NotTheirTerminal(PtyForbidden):
    def __init__(self, pty_id: str) -> None:
        super().__init__(f"Terminal {pty_id} is another user's: you may list and remove it, not type in it.")


class TooManyTerminals(TooMany):
    name = "TooManyTerminalsError"

    def __init__(self, most: int) -> None:
        super().__init__(f"You have {most} terminals already (OPENSESSION_MAX_TERMINALS). Close one first.")


MAX_EXITED = 20
"""How many terminals stay listed when their programs have exited; of more, the oldest are removed."""
_TITLE_CHARACTERS = 4


class Terminals:
    """`admits`: whether a user may work in a resolved directory. `elsewhere`: the end of the message about an unknown
    terminal."""

    def __init__(
        self,
        settings: Settings,
        programs: TerminalPrograms,
        writer: Writer,
        admits: Callable[[Principal, str], bool],
        elsewhere: str = "",
    ) -> None:
        self._is_on = settings.terminals
        self._most = settings.max_terminals
        self._programs = programs
        self._writer = writer
        self._admits = admits
        self._elsewhere = elsewhere
        self._terminals: dict[str, Terminal] = {}
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._creating = asyncio.Lock()

    async def create(self, principal: Principal, wanted: PtyInput, workspace: SandboxWorkspace, *, stays: bool = False) -> Pty:
        """`stays`: the terminal is listed when its program has exited, until it is removed. Raises TerminalsOff,
        TooManyTerminals, BadRequest, DirectoryForbidden."""
        async with self._creating:
            if not self._is_on:
                raise TerminalsOff
            running = sum(each.is_running and each.owner == principal.name for each in self._terminals.values())
            if running >= self._most:
                raise TooManyTerminals(self._most)
            made = await asyncio.to_thread(self._programs.make, wanted, workspace, partial(self._admits, principal))
            pty_id = ids.ascending("pty")
            title = wanted.title or f"Terminal {pty_id[-_TITLE_CHARACTERS:]}"
            info = Pty(id=pty_id, title=title, command=made.command, args=made.args, cwd=str(made.cwd), status="running", pid=0)
            terminal = Terminal(info, str(workspace.directory), principal.name, stays)
            try:
                await terminal.start(made.program)
            except OSError as error:
                raise BadRequest(f"{made.command} could not be started: {error}", ["command"], made.command) from error
            self._terminals[pty_id] = terminal
            self._watching[pty_id] = asyncio.create_task(self._until_exit(terminal), name=f"watch {pty_id}")
        self._announce(terminal, EventPtyCreated(properties=PtyInfo(info=terminal.info)))
        return terminal.info

    def all(self, principal: Principal, directory: str) -> list[Pty]:
        """A directory's terminals that the principal may see, oldest first."""
        found = (terminal for terminal in self._terminals.values() if terminal.directory == directory)
        return [terminal.info for terminal in found if principal.may_see(terminal.owner)]

    def get(self, principal: Principal, pty_id: str) -> Terminal:
        """Raises TerminalsOff, PtyNotFound."""
        if not self._is_on:
            raise TerminalsOff
        terminal = self._terminals.get(pty_id)
        if terminal is None or not principal.may_see(terminal.owner):
            raise PtyNotFound(pty_id, self._elsewhere)
        return terminal

    def own(self, principal: Principal, pty_id: str) -> Terminal:
        """A terminal that the principal may type in. Raises what `get` raises, and NotTheirTerminal."""
        terminal = self.get(principal, pty_id)
        if terminal.owner != principal.name:
            raise NotTheirTerminal(pty_id)
        return terminal

    def update(self, principal: Principal, pty_id: str, wanted: PtyUpdate) -> Pty:
        """Raises what `own` raises."""
        terminal = self.own(principal, pty_id)
        terminal.update(wanted)
        self._announce(terminal, EventPtyUpdated(properties=PtyInfo(info=terminal.info)))
        return terminal.info

    async def remove(self, principal: Principal, pty_id: str) -> None:
        """Ends the terminal's program. Raises what `get` raises."""
        await self._remove(self.get(principal, pty_id))

    async def end_all(self, directory: str | None = None) -> None:
        """Ends the terminals of a directory; None: of all."""
        await self.end_where(lambda terminal: directory in (None, terminal.directory))

    async def end_where(self, is_over: Callable[[Terminal], bool]) -> None:
        await asyncio.gather(*map(self._remove, filter(is_over, list(self._terminals.values()))))

    async def close(self) -> None:
        """Ends all terminals; no more are made. Waits for those that are being removed already, too."""
        self._is_on = False
        async with self._creating:
            await self.end_all()
        if self._watching:
            await asyncio.wait(self._watching.values())

    async def _until_exit(self, terminal: Terminal) -> None:
        pty_id = terminal.info.id
        code = await terminal.program.exited()
        await terminal.program.end()
        terminal.mark_exited(code)
        del self._watching[pty_id]
        if pty_id not in self._terminals:
            return  # it was removed
        if not terminal.stays:
            del self._terminals[pty_id]
        self._announce(terminal, EventPtyExited(properties=PtyExit(id=pty_id, exit_code=code)))
        exited = [each for each in self._terminals.values() if not each.is_running]
        for terminal in exited[: max(0, len(exited) - MAX_EXITED)]:
            await self._remove(terminal)

    async def _remove(self, terminal: Terminal) -> None:
        """Returns when all processes of the terminal have ended, also if the caller is cancelled meanwhile."""
        pty_id = terminal.info.id
        if self._terminals.pop(pty_id, None) is None:
            return
        watching = self._watching.get(pty_id)
        if watching is not None:
            await asyncio.shield(terminal.program.end())
            await asyncio.shield(watching)
        self._announce(terminal, EventPtyDeleted(properties=PtyRef(id=pty_id)))

    def _announce(self, terminal: Terminal, event: AnnouncedEvent) -> None:
        """Announces it to the owner, and to users who see everything. A failure of the database does not end the terminal."""
        announced = replace(Event.of(event, terminal.directory), owner=terminal.owner)
        self._writer.post(lambda tx: tx.announce(announced))
