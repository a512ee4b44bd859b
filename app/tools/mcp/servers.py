"""The MCP servers of one directory, and clients' choices for them at run time, which the servers of one database share."""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from app.project.sandbox.sandbox import Sandbox
from app.project.sandbox.scope import SandboxWorkspace
from app.record.directory_state import DirectoryState, DirectoryStates
from app.schema.base import Wire
from app.schema.config import McpConfig, McpEnabledConfig, McpLocalConfig
from app.schema.errors import NotFound
from app.schema.event import EventMcpToolsChanged, McpServerRef
from app.schema.project import MCPStatus, MCPStatusDisabled, MCPStatusNeedsAuth
from app.tools.mcp.connection import McpConnection
from app.tools.mcp.values import CredentialStore, McpFailure, McpServerConfig, McpTarget, ServerOffers, SignIn
from app.util.tasks import TaskSet

OWN_STATES = "mcp "
"""The names of all directory states of this package begin with it; the rest of a name is the MCP server's."""
CHOICE = "mcp choice "
TOOLS = "mcp tools "
SIGN_IN = "mcp sign-in "
CODE = "mcp code "
RESULT = "mcp result "

TURN_WAIT_SECONDS = 3.0
"""How long a turn waits for a server, from the start of connecting; it goes on without slower ones."""
CONNECT_SECONDS = 30.0
ANSWER_SECONDS = 60.0
SIGN_IN_SECONDS = 300.0


class McpChoice(Wire):
    """Whether clients want a server connected (anew, if it is connected) or off. `added`: the configuration of a server that was
    added at run time. `of`: the fingerprint of the configuration for which that was chosen."""

    enabled: bool
    of: str
    added: Annotated[McpServerConfig | None, Field(discriminator="type")] = None


def fingerprint(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True)
class McpSettings:
    """What the servers of all directories share. `environment`: the variables of this process that programs see."""

    environment: Mapping[str, str]
    sandbox: Sandbox
    credentials: CredentialStore
    states: DirectoryStates


@dataclass
class McpServer:
    """`connection` is None while the server is switched off. `added`: at run time, it is not in the configuration. `users` counts
    the McpServers that have started it; `enabled`: they connect it."""

    name: str
    config: McpServerConfig
    added: bool = False
    connection: McpConnection | None = None
    users: int = 0
    enabled: bool = field(init=False)

    def __post_init__(self) -> None:
        self.enabled = self.config.enabled is not False

    @property
    def status(self) -> MCPStatus:
        """A server that is still connecting counts as needing a sign-in."""
        if self.connection is None:
            return MCPStatusDisabled()
        return self.connection.status or MCPStatusNeedsAuth()

    @property
    def sign_in(self) -> SignIn | None:
        return self.connection.target.sign_in if self.connection else None

    @property
    def waits_for_user(self) -> bool:
        """False once the server is connected, has failed or is switched off."""
        if self.connection is None or self.connection.status is not None:
            return False
        return self.sign_in is not None and not self.sign_in.answer.done()


class McpServers:
    """The servers of one configuration. When that changes, `configured` makes another set, which shares the servers that stay: a
    server is connected as long as a set with it is started."""

    def __init__(self, workspace: SandboxWorkspace, settings: McpSettings, answer_ms: int | None = None) -> None:
        self.directory = str(workspace.directory)
        self._workspace = workspace
        self.settings = settings
        self._servers: dict[str, McpServer] = {}
        self._answer_seconds = answer_ms / 1000 if answer_ms else ANSWER_SECONDS
        self._started = False
        self._closing = TaskSet()
        self._followed: dict[str, int] = {}
        """By server, the revision of the newest choice at other servers that was followed."""

    def __iter__(self) -> Iterator[McpServer]:
        return iter(list(self._servers.values()))

    def find(self, name: str) -> McpServer:
        """Raises NotFound."""
        if name not in self._servers:
            raise NotFound(f"There is no MCP server {name!r}. There are: {', '.join(self._servers) or 'none'}")
        return self._servers[name]

    # The servers of a set.

    def configured(self, config: Mapping[str, McpConfig], answer_ms: int | None, workspace: SandboxWorkspace) -> "McpServers":
        """The set of another configuration, not started. It shares added servers, and those with the same configuration."""
        other = McpServers(workspace, self.settings, answer_ms)
        wanted = {name: one for name, one in config.items() if not isinstance(one, McpEnabledConfig)}
        kept = {server.name: server for server in self if server.added or self._is_unchanged(server, wanted, workspace)}
        other._followed = dict(self._followed)
        other._servers = {**kept, **{name: McpServer(name, one) for name, one in wanted.items() if name not in kept}}
        return other

    def _is_unchanged(self, server: McpServer, wanted: Mapping[str, McpServerConfig], workspace: SandboxWorkspace) -> bool:
        """A program is started anew if it may reach other files."""
        is_alike = wanted.get(server.name) == server.config
        return is_alike and (workspace == self._workspace or not isinstance(server.config, McpLocalConfig))

    def start(self) -> None:
        """Connects the servers that are switched on and that no other set has started. Returns at once."""
        self._started = True
        for server in self:
            self._use(server)

    def stop(self) -> None:
        """Closes the servers that no other set has started. Returns at once; the set may be started again."""
        if self._started:
            self._started = False
            for server in self:
                self._release(server)

    async def add(self, name: str, config: McpServerConfig) -> dict[str, MCPStatus]:
        """The server lasts until the directory is closed. Returns the statuses of all."""
        server = McpServer(name, config, added=True)
        self._replace(server)
        await self.share_choice(server)
        return await self.statuses()

    async def connect(self, name: str) -> None:
        """Connects anew if the server is connected. Returns when it is connected or has failed. Raises NotFound."""
        server = self.find(name)
        server.enabled = True
        connection = self.open(server)
        await self.share_choice(server)
        await connection.wait_opened()

    async def disconnect(self, name: str) -> None:
        """Lasts until the server is connected again. Raises NotFound."""
        server = self.find(name)
        server.enabled = False
        connection = server.connection
        self._close_connection(server)
        await self.share_choice(server)
        if connection is not None:
            await connection.close()
            self._announce(server)

    async def statuses(self) -> dict[str, MCPStatus]:
        """The status of every server. Waits for those that are connecting."""
        connecting = [server.connection for server in self if server.connection and not server.waits_for_user]
        await asyncio.gather(*(connection.wait_opened() for connection in connecting))
        return {server.name: server.status for server in self}

    async def stopped(self) -> None:
        """Returns when all processes and connections that were closed have ended."""
        await self._closing.wait()

    def open(self, server: McpServer, sign_in: SignIn | None = None) -> McpConnection:
        """A new connection in place of the server's present one."""
        self._close_connection(server)
        shared = self.settings
        environment, credentials = shared.environment, shared.credentials
        target = McpTarget(server.name, server.config, self._workspace, environment, shared.sandbox, credentials, sign_in)
        own_seconds = server.config.timeout / 1000 if server.config.timeout else None
        connect_seconds = SIGN_IN_SECONDS if sign_in else own_seconds or CONNECT_SECONDS
        answer_seconds = own_seconds or self._answer_seconds
        server.connection = McpConnection(target, connect_seconds, answer_seconds, lambda: self._announce(server))
        return server.connection

    # Choices of clients, shared with other servers.

    async def share_choice(self, server: McpServer) -> None:
        """Other servers connect the MCP server too, or switch it off. Raises StorageError."""
        choice = McpChoice(enabled=server.enabled, of=fingerprint(server.config), added=server.config if server.added else None)
        await self.settings.states.put(self.directory, CHOICE + server.name, choice.wire_json().decode())

    def follow(self, states: Iterable[DirectoryState]) -> None:
        """Follows the choices of clients at other servers. Returns at once."""
        for state in states:
            name = state.name.removeprefix(CHOICE)
            if state.name.startswith(CHOICE) and state.revision > self._followed.get(name, 0):
                self._followed[name] = state.revision
                self._apply_choice(name, McpChoice.model_validate_json(state.value))

    def _apply_choice(self, name: str, choice: McpChoice) -> None:
        server = self._servers.get(name)
        if choice.added is not None and (server is None or server.config != choice.added):
            server = McpServer(name, choice.added, added=True)
            server.enabled = choice.enabled
            self._replace(server)
        elif server is not None and fingerprint(server.config) == choice.of:
            server.enabled = choice.enabled
            if choice.enabled and server.users:
                self.open(server)
            elif not choice.enabled:
                self._close_connection(server)

    # What the servers offer.

    async def offers(self, *, in_turn: bool = False) -> list[ServerOffers]:
        """What the connected servers offer. Connects a lost server again. Waits for those that are connecting; in a turn only a
        moment."""
        if not self._servers:
            return []
        connections = [self._connection_of(server) for server in self if not server.waits_for_user]
        found = [connection for connection in connections if connection is not None]
        within = TURN_WAIT_SECONDS if in_turn else None
        await asyncio.gather(*(connection.wait_opened(within) for connection in found))
        return [connection.offers for connection in found]

    async def connection(self, name: str) -> McpConnection:
        """The connection, up or failed; a new one if it was lost. Raises McpFailure for a server that is not connected."""
        server = self._servers.get(name)
        connection = self._connection_of(server) if server else None
        if server is None or connection is None or server.waits_for_user:
            raise McpFailure(f"The MCP server {name} is not connected")
        await connection.wait_opened()
        return connection

    def _connection_of(self, server: McpServer) -> McpConnection | None:
        """The server's connection; a new one if it was lost."""
        lost = server.connection is not None and server.connection.is_lost
        return self.open(server) if lost else server.connection

    # Connecting and closing.

    def _replace(self, server: McpServer) -> None:
        """Replaces the server of this name."""
        before = self._servers.pop(server.name, None)
        self._servers[server.name] = server
        if self._started:
            if before is not None:
                self._release(before)
            self._use(server)

    def _use(self, server: McpServer) -> None:
        server.users += 1
        if server.users == 1 and server.enabled:
            self.open(server)

    def _release(self, server: McpServer) -> None:
        server.users -= 1
        if server.users == 0:
            self._close_connection(server)

    def _close_connection(self, server: McpServer) -> None:
        connection, server.connection = server.connection, None
        if connection is not None:
            self._closing.start(connection.close(), f"close mcp {server.name}")

    def _announce(self, server: McpServer) -> None:
        """Announces that the server's tools have changed, once, although each server that is connected to it sees that."""
        changed = EventMcpToolsChanged(properties=McpServerRef(server=server.name))
        tools = fingerprint(server.connection.offers.tools if server.connection else ())
        self.settings.states.announce_change(self.directory, TOOLS + server.name, tools, changed)
