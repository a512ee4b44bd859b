"""What is needed to connect to an MCP server, and what a server offers and answers, as values of ours."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ValidationError

from app.project.sandbox.sandbox import Sandbox
from app.project.sandbox.scope import SandboxWorkspace
from app.schema.config import McpLocalConfig, McpRemoteConfig
from app.schema.part import FileContent
from app.util.data_files import PrivateJson
from app.util.secrets import secrets_of, words_of_secrets

McpServerConfig = McpLocalConfig | McpRemoteConfig


class McpFailure(Exception):
    """A request to a server failed; the message says why."""


class McpTimeout(McpFailure):
    """The server has not answered in time."""


class SignInNeeded(Exception):
    """The server requires a sign-in."""


@dataclass(frozen=True, slots=True)
class ServerTool:
    server: str
    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ServerPrompt:
    """`arguments`: their names, in the order in which a command takes them."""

    server: str
    name: str
    description: str | None
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServerResource:
    server: str
    name: str
    uri: str
    description: str | None
    mime: str | None


@dataclass(frozen=True, slots=True)
class ServerOffers:
    tools: tuple[ServerTool, ...] = ()
    prompts: tuple[ServerPrompt, ...] = ()
    resources: tuple[ServerResource, ...] = ()


@dataclass(frozen=True, slots=True)
class Content:
    """`files` are `data:` URLs."""

    texts: Sequence[str] = ()
    files: Sequence[FileContent] = ()
    is_error: bool = False

    @property
    def text(self) -> str:
        return "\n\n".join(self.texts)


class Credentials(BaseModel):
    """`client`: this program's registration at the server. `metadata`: where tokens are renewed. Both in the SDK's form.
    `expires_at` is in seconds since 1970."""

    redirect_uri: str
    client: dict[str, Any] | None = None
    tokens: dict[str, Any] | None = None
    expires_at: float | None = None
    metadata: dict[str, Any] | None = None


class CredentialStore:
    def __init__(self, data_dir: Path) -> None:
        self._file = PrivateJson(data_dir / "mcp-auth.json")

    def get(self, url: str) -> Credentials | None:
        """None also for an invalid entry: the user signs in again."""
        try:
            return Credentials.model_validate(self._file.read().get(url))
        except ValidationError:
            return None

    def put(self, url: str, credentials: Credentials) -> None:
        with self._file.updating() as content:
            content[url] = credentials.model_dump(mode="json", exclude_none=True)

    def remove(self, url: str) -> None:
        with self._file.updating() as content:
            content.pop(url, None)


def state_of(page: str) -> str | None:
    """The state in the address of a sign-in page."""
    return parse_qs(urlsplit(page).query).get("state", [None])[0]


class SignIn:
    """`address`: the page to open, once it is known. The browser comes back to `redirect_uri` with a code. `listener`: at a port
    of its own, until the connection is open or has failed."""

    def __init__(self, redirect_uri: str, listener: asyncio.Server | None) -> None:
        loop = asyncio.get_running_loop()
        self.redirect_uri = redirect_uri
        self._listener = listener
        self.address: asyncio.Future[str] = loop.create_future()
        self.answer: asyncio.Future[tuple[str, str | None]] = loop.create_future()
        """The code, and the issuer if one came with it."""

    @property
    def state(self) -> str | None:
        """What the browser must bring back, so that no other's code is accepted."""
        return state_of(self.address.result()) if self.address.done() else None

    def finish(self, code: str, issuer: str | None = None) -> None:
        if not self.answer.done():
            self.answer.set_result((code, issuer))

    def refuse(self, why: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(McpFailure(f"The sign-in was refused: {why}"))

    def close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()


@dataclass(frozen=True)
class McpTarget:
    """A program is started in the sandbox of `workspace`, with `environment` and the variables of its own configuration. With a
    `sign_in` a remote server may ask the user to sign in; without one only stored credentials are tried."""

    name: str
    config: McpServerConfig
    workspace: SandboxWorkspace
    environment: Mapping[str, str]
    sandbox: Sandbox
    credentials: CredentialStore
    sign_in: SignIn | None = None

    def secrets(self) -> list[str]:
        """Values of the configuration that an error may quote and clients must not see."""
        match self.config:
            case McpLocalConfig(command=command, environment=environment):
                return [*secrets_of(environment, headers=True), *words_of_secrets(command)]
            case McpRemoteConfig():
                return list(secrets_of(self.config.layer()))


def takes_sign_in(config: McpServerConfig) -> TypeGuard[McpRemoteConfig]:
    """False if the configuration turns sign-in off or has a key of its own."""
    if not isinstance(config, McpRemoteConfig) or config.oauth is False:
        return False
    return "authorization" not in {header.lower() for header in config.headers}


class McpWatch:
    """What the task of a connection waits for once it is up: a change that the server announces, or the end."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.end: Exception | None = None
        self._stopped = False
        self.last_status: int | None = None
        """Of the newest HTTP answer."""

    def changed(self) -> None:
        self._event.set()

    def ended(self, why: Exception) -> None:
        """The first reason counts."""
        self.end = self.end or why
        self._event.set()

    def stop(self) -> None:
        self._stopped = True
        self._event.set()

    async def next_change(self) -> bool:
        """True at a change, False when stopped. Raises why the connection ended."""
        await self._event.wait()
        self._event.clear()
        if self.end is not None:
            raise self.end
        return not self._stopped
