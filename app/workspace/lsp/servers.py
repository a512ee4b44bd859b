"""The language servers of one directory: each starts when the first file that it is for is written or read."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from app.project.config.flags import Flags
from app.project.sandbox.sandbox import Sandbox
from app.project.sandbox.scope import Program, SandboxWorkspace
from app.schema.config import LspConfig
from app.schema.event import AnnouncedEvent, DiagnosedFile, EventLspClientDiagnostics, EventLspUpdated, Nothing
from app.schema.project import FileErrors, LSPStatus, Symbol
from app.util.tasks import TaskSet
from app.workspace.lsp import server_messages
from app.workspace.lsp.kinds import ServerKind, configured
from app.workspace.lsp.server import LanguageServer, LspTarget

ANSWER_SECONDS = 3.0
"""The longest time that a call waits for all servers together."""
MAX_SERVERS = 10
"""The most servers of a directory: each nested project has its own."""
LOOK_AGAIN_SECONDS = 10.0
"""How long after a server was not found it is looked for again."""
_MAX_PLACES = 100
_ANNOUNCE_AFTER_SECONDS = 0.1
_MAX_ANNOUNCED = 20

LspChoice = bool | Mapping[str, LspConfig] | None


@dataclass(frozen=True)
class LspSettings:
    """What the servers of all directories share. `environment`: the variables of this process that programs see."""

    environment: Mapping[str, str]
    sandbox: Sandbox
    announce: Callable[[str, AnnouncedEvent], Awaitable[None]]
    flags: Flags = field(default_factory=Flags)


class LanguageServers:
    """The language servers of one configuration."""

    def __init__(self, workspace: SandboxWorkspace, settings: LspSettings, config: LspChoice) -> None:
        self._workspace = workspace
        self._settings = settings
        self._config = config
        self._users = 0
        """The number of instances that have started them."""
        self._servers: dict[tuple[str, Path], LanguageServer] = {}
        self._closing = TaskSet()
        self._none_until: dict[tuple[Path, str], float] = {}
        """By folder and extension for which no server was found, when to look again."""
        self._diagnosed: dict[tuple[str, Path], None] = {}

    def serves(self, workspace: SandboxWorkspace, config: LspChoice) -> bool:
        """Whether the servers suit another configuration of the directory too."""
        return (workspace, config) == (self._workspace, self._config)

    def start(self) -> None:
        self._users += 1

    def stop(self) -> None:
        """Stops the servers, unless another instance has started them. Returns at once."""
        self._users -= 1
        if self._users == 0:
            servers, self._servers = self._servers, {}
            for server in servers.values():
                self._closing.start(server.close(), f"close language server {server.target.kind.id}")

    async def stopped(self) -> None:
        """Returns when all processes that were stopped have ended."""
        await self._closing.wait()

    def is_for(self, path: Path) -> bool:
        """Whether there may be a server for the file; does not access the disk."""
        return any(kind.serves(path) for kind in self._kinds)

    async def serving(self, path: Path) -> tuple[Path, list[LanguageServer]]:
        """The file's servers, started, and its path without links."""
        place, now = (path.parent, path.suffix), time.monotonic()
        if not self._users or not self.is_for(path) or now < self._none_until.get(place, 0):
            return path, []
        real, targets = await asyncio.to_thread(self._targets, path)
        if not targets:
            self._note_none(place, now + LOOK_AGAIN_SECONDS)
        return real, [server for target in targets if (server := self._server(target))]

    def _note_none(self, place: tuple[Path, str], until: float) -> None:
        """Forgets the oldest notes above _MAX_PLACES."""
        self._none_until.pop(place, None)
        self._none_until[place] = until
        while len(self._none_until) > _MAX_PLACES:
            del self._none_until[next(iter(self._none_until))]

    async def check(self, files: Mapping[Path, str]) -> dict[Path, FileErrors]:
        """The errors that all servers report of these files with these texts, and of other files that have errors."""
        deadline = asyncio.get_running_loop().time() + ANSWER_SECONDS
        names: dict[Path, Path] = {}
        asked: list[tuple[LanguageServer, Path, str]] = []
        for path, text in files.items():
            real, servers = await self.serving(path)
            names[real] = path
            asked += [(server, real, text) for server in servers]
        await asyncio.gather(*(server.check(real, text, deadline) for server, real, text in asked))
        found: dict[Path, FileErrors] = {}
        for server in self._servers.values():
            for real, errors in server.errors.items():
                found.setdefault(names.get(real) or self._path_by_name(real), FileErrors()).add(errors)
        return found

    def _path_by_name(self, real: Path) -> Path:
        """The path as the directory's own name spells it."""
        held = self._workspace.directories()[-1]
        return held.path / real.relative_to(held.real) if real.is_relative_to(held.real) else real

    def statuses(self) -> list[LSPStatus]:
        """The statuses of servers that are ready, or have failed."""
        return [self._status(server) for server in self._servers.values() if server.is_ready or server.has_failed]

    async def symbols(self, query: str) -> list[Symbol]:
        """The project's symbols, from the servers that are ready: at most 10 of each."""
        deadline = asyncio.get_running_loop().time() + ANSWER_SECONDS
        ready = [server for server in self._servers.values() if server.is_ready and not server.is_behind]
        answers = await asyncio.gather(*(server.symbols(query, deadline) for server in ready))
        found = (server_messages.symbols(answer, server.target.top) for server, answer in zip(ready, answers, strict=True))
        return [symbol for symbols in found for symbol in symbols]

    async def answers(self, operation: str, path: Path, text: str, position: tuple[int, int]) -> list[Any] | None:
        """Each server's answer to an operation of the tool `lsp`, without empty ones. None if there is no server for the file."""
        real, servers = await self.serving(path)
        deadline = asyncio.get_running_loop().time() + ANSWER_SECONDS
        found = await asyncio.gather(*(server.answer(operation, real, text, position, deadline) for server in servers))
        return [answer for answer in found if answer] if servers else None

    async def symbol_length(self, path: Path, text: str, line: int) -> int | None:
        """The number of lines of a symbol that begins at a line, counted from 0. None if no symbol begins there."""
        answers = await self.answers("documentSymbol", path, text, (0, 0)) or ()
        ranges = (found for answer in answers for found in server_messages.ranges_of(answer))
        return next((found.end.line - line + 1 for found in ranges if found.start.line == line), None)

    def _status(self, server: LanguageServer) -> LSPStatus:
        target, directory = server.target, self._workspace.directories()[-1].real
        status = "connected" if server.is_ready else "error"
        root = os.path.relpath(target.root, directory)
        return LSPStatus(id=target.kind.id, name=target.kind.id, root="" if root == os.curdir else root, status=status)

    @cached_property
    def _kinds(self) -> list[ServerKind]:
        return configured(self._config, self._settings.flags)

    def _targets(self, path: Path) -> tuple[Path, list[LspTarget]]:
        """Accesses the disk."""
        real = Path(os.path.realpath(path))
        return real, [target for kind in self._kinds if kind.serves(real) and (target := self._target(kind, real))]

    def _target(self, kind: ServerKind, path: Path) -> LspTarget | None:
        directories = self._workspace.real_directories()
        top, directory = directories[0], directories[-1]
        root = kind.root_of(path, directory, top) if path.is_relative_to(top) else None
        if root is None:
            return None
        command = kind.command(root, top, self._settings.environment.get("PATH"))
        settings = kind.initialization(root, top)
        if command is None or settings is None:
            return None
        program = partial(self._program, kind, command, root)
        changed = partial(self._announce, EventLspUpdated(properties=Nothing()))
        return LspTarget(kind, root, top, settings, program, partial(self._announce_diagnosed_soon, kind.id), changed)

    def _program(self, kind: ServerKind, command: Sequence[str], root: Path) -> Program:
        env = {**self._settings.environment, **(kind.env or {})}
        return self._settings.sandbox.program(command, self._workspace, env, cwd=root, shows_named=True)

    def _server(self, target: LspTarget) -> LanguageServer | None:
        key = (target.kind.id, target.root)
        if key not in self._servers and len(self._servers) < MAX_SERVERS and self._users:
            self._servers[key] = LanguageServer(target)
        return self._servers.get(key)

    def _announce(self, event: AnnouncedEvent) -> None:
        self._settings.announce(str(self._workspace.directory), event)  # need not be awaited

    def _announce_diagnosed_soon(self, kind: str, path: Path) -> None:
        """Announces after a moment, once for several calls: a server may publish a file's errors ten times a second."""
        if not self._diagnosed:
            asyncio.get_running_loop().call_later(_ANNOUNCE_AFTER_SECONDS, self._announce_diagnosed)
        if len(self._diagnosed) < _MAX_ANNOUNCED:
            self._diagnosed[kind, path] = None

    def _announce_diagnosed(self) -> None:
        diagnosed, self._diagnosed = self._diagnosed, {}
        for kind, path in diagnosed:
            properties = DiagnosedFile(server_id=kind, path=str(path))
            self._announce(EventLspClientDiagnostics(properties=properties))
